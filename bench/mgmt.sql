-- name: hosts
-- Hosts that may be asked since yesterday, or not before tomorrow; their order has nothing to do with where pages lie.
insert into work.domain (tld, number, name)
select d % 6 + 1, d / 6 + 1, 'agency-' || lpad(d::text, 6, '0') from generate_series(0, :hosts - 1) d;
insert into work.hosts (domain64, name, next_fetch, crawl_started, ready_at, claim_at)
select
    work.domain64_encode(tld.code, d / 6 + 1, 0), 'agency-' || lpad(d::text, 6, '0') || '.' || tld.name,
    now(), now(), ready.at, ready.at
from generate_series(0, :hosts - 1) d
join work.tld on tld.code = d % 6 + 1
cross join lateral (select now() + :days * interval '1 day' + d::bigint * 7919 % :hosts * interval '1 ms' as at) ready
order by d;
update work.settings set crawl_delay = '0';
analyze work.hosts;

-- name: pages
-- Pages that wait, those of one host far apart from each other. Indexes are built afterwards, as they are declared.
do $$
declare
    declared text[] := array(
        select format('alter table work.guestbook add constraint %I %s', conname, pg_get_constraintdef(oid))
        from pg_constraint where conrelid = 'work.guestbook'::regclass and contype in ('p', 'u') order by oid
    ) || array(
        select pg_get_indexdef(indexrelid) from pg_index i
        where indrelid = 'work.guestbook'::regclass
            and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
        order by indexrelid
    );
    line text;
begin
    for line in
        select format('alter table work.guestbook drop constraint %I', conname) from pg_constraint
        where conrelid = 'work.guestbook'::regclass and contype in ('p', 'u')
    loop
        execute line;
    end loop;
    for line in
        select format('drop index %s', indexrelid::regclass) from pg_index
        where indrelid = 'work.guestbook'::regclass
    loop
        execute line;
    end loop;
    alter table work.guestbook disable trigger user;
    insert into work.guestbook (domain64, path, next_fetch, state, admitted_at)
    select
        h.domain64, '/news/2026/' || lpad(to_hex(n), 8, '0') || '-a-page.html', now(), 'pending', now() - interval '1 day'
    from generate_series(0, :rows - 1) n
    join work.hosts h on h.id = 1 + n % :hosts;
    alter table work.guestbook enable trigger user;
    foreach line in array declared loop
        execute line;
    end loop;
end
$$;

-- name: bare
-- The least that a polite queue of pages can be: a host with a time, a page with a state.
create table host (id integer primary key, ready_at timestamptz not null);
create table page (
    id bigint primary key, host_id integer not null, state text not null, path text not null, at timestamptz
);
insert into host
select d, now() - interval '1 day' + d::bigint * 7919 % :hosts * interval '1 ms' from generate_series(1, :hosts) d;
insert into page
select n, 1 + n % :hosts, 'pending', '/news/2026/' || lpad(to_hex(n), 8, '0') || '-a-page.html', now()
from generate_series(0, :rows - 1) n;
create index on host (ready_at);
create index on page (host_id, id) where state = 'pending';

-- name: limit_work
-- A script for pgbench: the hosts that have rested longest, the first pages of each; and then all of them are crawled.
with hosts as (
    select id from host where ready_at <= now() order by ready_at limit :width for no key update skip locked
), pages as (
    select p.id
    from hosts h
    cross join lateral (
        select id from page
        where host_id = h.id and state = 'pending' order by id limit :depth for no key update skip locked
    ) p
), rest as (
    update host set ready_at = clock_timestamp() where id = any(array(select id from hosts))
), mine as (
    update page set state = 'crawling', at = now() where id = any(array(select id from pages)) returning id
)
select coalesce(array_agg(id), '{}') as ids from mine \gset
update page set state = 'crawled', at = now() where id = any(:ids::bigint[]) and state = 'crawling';

-- name: map
-- Servers in rows, every chunk on one server of each row and loaded there.
update work.settings set "rows" = :row_count;
insert into work.component (host, type, machine, "row", seen_at)
select format('10.0.%s.%s:5000', r, s), 'index-server', format('10.0.%s.%s', r, s), r, now()
from generate_series(1, :row_count) r, generate_series(1, :servers / :row_count) s;
insert into work.component (host, type, machine, seen_at)
values ('10.1.0.1:5000', 'crawler', '10.1.0.1', now()), ('10.2.0.1:5000', 'index-builder', '10.2.0.1', now());
insert into work.chunk (state, crawler_id, claimed_at, crawled_at, index_state, builder_id, built_at, propagated_at)
select 'crawled', c.id, now(), now(), 'built', b.id, now(), now()
from generate_series(1, :chunks), work.component c, work.component b
where c.type = 'crawler' and b.type = 'index-builder';
insert into work.placement (chunk_id, component_id, "row", state, since)
select k.id, s.id, s."row", 'loaded', now()
from work.chunk k
join (
    select id, "row", row_number() over (partition by "row" order by id) - 1 as place from work.component where "row" > 0
) s on s.place = k.id % (:servers / :row_count);
