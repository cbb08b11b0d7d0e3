-- name: pages
-- The pages of some hosts by state, and how many of them can be found once their chunk is loaded.
select
    count(*) filter (where state = 'pending') as waiting,
    count(*) filter (where state = 'crawling') as crawling,
    count(*) filter (where state = 'crawled') as crawled,
    count(*) filter (where state = 'error') as failed,
    count(indexed_in) as indexed
from work.guestbook
where domain64 = any(%(hosts)s);

-- name: full_disk
-- A component that stopped because its disk is full, and its words.
select host, state_reason from work.component where state in ('waiting', 'error') and state_reason like %(prefix)s
order by host limit 1;

-- name: chunks
-- The chunks on their way that pages of some hosts are in, up to a limit each.
with mine as (
    select 'open' as stage, k.id from (select id from work.chunk where state = 'crawling' limit %(most)s) k
  union all
    select 'unbuilt', k.id
    from (select id from work.chunk where state = 'crawled' and index_state is null limit %(most)s) k
  union all
    select 'unbuilt', k.id from (select id from work.chunk where index_state = 'building' limit %(most)s) k
  union all
    select 'unpropagated', k.id
    from (select id from work.chunk where index_state = 'built' and propagated_at is null limit %(most)s) k
)
select
    count(*) filter (where stage = 'open') as open,
    count(*) filter (where stage = 'unbuilt') as unbuilt,
    count(*) filter (where stage = 'unpropagated') as unpropagated
from mine
where exists (
    -- "offset 0" keeps the look-up by chunk, also before anything is known of the sizes.
    select from (select domain64 from work.guestbook where chunk_id = mine.id offset 0) g
    where g.domain64 = any(%(hosts)s)
);
