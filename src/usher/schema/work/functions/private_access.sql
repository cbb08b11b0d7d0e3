-- The operator allows crawlers to connect to a registered host at one port and these addresses. What was read of its
-- robots.txt before, and its rest after failures, are forgotten. No role may write the table itself.
create function work.allow_private(host_name text, host_port integer, pinned inet[], at timestamptz) returns boolean
    language plpgsql security definer set search_path = ''
as $$
declare
    number bigint;
begin
    update work.hosts h
    set revision = h.revision + 1, troubles = 0,
        ready_at = case when h.held_by is null then least(h.ready_at, at) else h.ready_at end,
        claim_at = case when h.held_by is null then least(h.claim_at, at) else h.claim_at end,
        empty_checks = 0
    where h.name = host_name
    returning h.domain64 into number;
    if number is null then
        return false;
    end if;
    insert into work.private_access (host, port, addresses, granted_at)
    values (host_name, host_port, pinned, at)
    on conflict (host, port) do update set addresses = excluded.addresses, granted_at = excluded.granted_at;
    update work.robots r set expires_at = at where r.domain64 = number and r.error <> '' and r.expires_at > at;
    return true;
end
$$;

-- Crawlers may not connect to this host any more unless its addresses are public.
create function work.forbid_private(host_name text) returns boolean
    language plpgsql security definer set search_path = ''
as $$
begin
    delete from work.private_access p where p.host = host_name;
    update work.hosts h set revision = h.revision + 1 where h.name = host_name;
    return found;
end
$$;

-- Makes doors that cache the host read it again: it is the address of a component.
create function work.component_is_no_host() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    update work.hosts h set revision = h.revision + 1 where h.name = new.host;
    return null;
end
$$;

create trigger component_is_no_host after insert on work.component
    for each row execute function work.component_is_no_host();
