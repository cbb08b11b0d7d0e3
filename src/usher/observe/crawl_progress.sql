-- name: pages
-- Pages of some hosts by state, and pages that are searchable once their chunk is loaded.
select
    count(*) filter (where state = 'pending') as waiting,
    count(*) filter (where state = 'crawling') as crawling,
    count(*) filter (where state = 'crawled') as crawled,
    count(*) filter (where state = 'error') as failed,
    count(indexed_in) as indexed
from work.guestbook
where domain64 = any(%(hosts)s);

-- name: full_disk
-- A component that stopped because its disk is full, with its reason.
select host, state_reason from work.component where state in ('waiting', 'error') and state_reason like %(prefix)s
order by host limit 1;

-- name: chunks
-- Chunks in progress that contain pages of some hosts, counted up to a limit per stage.
with in_progress as (
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
from in_progress p
where exists (
    -- "offset 0" forces a lookup by chunk, also before the tables are analyzed.
    select from (select domain64 from work.guestbook where chunk_id = p.id offset 0) g
    where g.domain64 = any(%(hosts)s)
);
