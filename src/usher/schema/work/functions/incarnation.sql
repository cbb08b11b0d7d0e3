-- Starts a new incarnation in one transaction. No copy counts as loaded until its server has compared it; unfinished moves are
-- undone, so that a server with a copy keeps its placement. work.stale_copy decides which copies servers remove when they load the
-- chunk again. Ids continue at the next billion, because the lost history issued fewer. Doorkeepers clear their cache. The last
-- 12 digits of the id stay: they name the installation, so that an index server detects the index of another one.
create function work.begin_incarnation(why text) returns uuid
    language plpgsql security definer
    set search_path = ''
as $$
declare
    new_id uuid := (
        select left(gen_random_uuid()::text, 24) || right(i.id::text, 12) from work.incarnation i
    );
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
    delete from work.retirement;

    perform pg_catalog.setval(
        pg_catalog.format('%I.%I', s.schemaname, s.sequencename)::regclass,
        (coalesce(s.last_value, 0) / step + 1) * step
    )
    from pg_catalog.pg_sequences s
    where s.schemaname = 'work';
    update work.settings set revision = revision + 1000000;

    insert into work.incarnation (id, since, reason) values (coalesce(new_id, gen_random_uuid()), now(), why)
    on conflict (is_current) do update set id = excluded.id, since = excluded.since, reason = excluded.reason
    returning id into new_id;
    return new_id;
end
$$;
