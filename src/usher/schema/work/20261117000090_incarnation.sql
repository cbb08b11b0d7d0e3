-- migrate:up

-- A database that was restored has another history than its components. The incarnation tells them: it changes with every
-- restore, and a component that sees a new one compares what it holds with what the database believes.
create table work.incarnation (
    id uuid not null,
    since timestamptz not null,
    reason text not null,
    is_current boolean primary key default true,
    constraint incarnation_is_one_row check (is_current)
);

comment on table work.incarnation is 'One row. The id changes when the database is restored: see work.begin_incarnation.';

-- Chunks that were searchable in the database as it was restored, until every row has them again, or their pages were
-- crawled again because no copy is left. As long as a row lacks one, its answers are partial.
create table work.unrestored (
    chunk_id bigint primary key references work.chunk (id)
);

alter table work.placement add unreported boolean not null default false;

comment on column work.placement.unreported is
    'Loaded when the database was dumped, and its server has not reported since the restore. It may have the copy.';

create index placement_unreported on work.placement (chunk_id) where unreported;

-- Start a new incarnation in one transaction. No copy counts as loaded until its server has compared it; moves under way
-- are undone, so that a server with a copy keeps its seat. What servers have to take out follows from work.outdated when
-- they load the chunk. Ids continue at the next billion: the lost history issued fewer. Doorkeepers forget their hosts.
create function work.begin_incarnation(why text) returns uuid
    language plpgsql security definer
    set search_path = ''
as $$
declare
    new_id uuid := gen_random_uuid();
    step constant bigint := 1000000000;
begin
    -- As `placements.plan_alone`: reports of servers under the old incarnation end before this, or are refused after it.
    perform pg_catalog.pg_advisory_xact_lock(129138533167649);

    delete from work.placement p
    where p.state = 'leaving' and (
        p.released_at is not null
        or exists (
            select from work.placement s
            where s.chunk_id = p.chunk_id and s."row" = p."row"
                and (s.state = 'loaded' or (s.state = 'leaving' and s.released_at is null and s.component_id < p.component_id))
        )
    );
    delete from work.placement p
    where p.state = 'wanted' and exists (
        select from work.placement s where s.chunk_id = p.chunk_id and s."row" = p."row" and s.state = 'leaving'
    );
    insert into work.unrestored (chunk_id)
    select distinct p.chunk_id
    from work.placement p
    join work.chunk k on k.id = p.chunk_id and k.index_state = 'built'
    where p.state <> 'wanted'
    on conflict do nothing;
    update work.placement set state = 'wanted', unreported = true, since = now() where state <> 'wanted';
    delete from work.retire;

    perform pg_catalog.setval(
        pg_catalog.format('%I.%I', s.schemaname, s.sequencename)::regclass,
        (coalesce(s.last_value, 0) / step + 1) * step
    )
    from pg_catalog.pg_sequences s
    where s.schemaname = 'work';
    update work.house set revision = revision + 1000000;

    insert into work.incarnation (id, since, reason) values (new_id, now(), why)
    on conflict (is_current) do update set id = excluded.id, since = excluded.since, reason = excluded.reason;
    return new_id;
end
$$;

-- Of a database that never was another one.
insert into work.incarnation (id, since, reason) values (gen_random_uuid(), now(), 'created');

-- migrate:down

drop function work.begin_incarnation(text);
update work.placement set unreported = false where unreported;
drop index work.placement_unreported;
alter table work.placement drop unreported;
drop table work.unrestored, work.incarnation;
