-- A foreign key to hosts that is checked once a statement: a check for each row cost 22 % of the door's speed (ADR 0010).
create function work.guestbook_host_exists() returns trigger
    language plpgsql
as $$
begin
    -- "offset 0" keeps the look-up by index: the planner cannot know how few rows a batch has.
    if exists (
        select from fresh where not exists (select from work.hosts h where h.domain64 = fresh.domain64 offset 0)
    ) then
        raise foreign_key_violation using message = 'a page of guestbook has no host';
    end if;
    return null;
end
$$;

create trigger guestbook_host_exists after insert on work.guestbook
    referencing new table as fresh for each statement execute function work.guestbook_host_exists();

-- Refuses every delete.
create function work.never_deleted() returns trigger
    language plpgsql
as $$
begin
    raise restrict_violation using message = format('rows of %I.%I are never deleted', tg_table_schema, tg_table_name);
end
$$;

create trigger guestbook_is_never_deleted before delete or truncate on work.guestbook
    for each statement execute function work.never_deleted();

create trigger hosts_are_never_deleted before delete or truncate on work.hosts
    for each statement execute function work.never_deleted();

create trigger chunks_are_never_deleted before delete or truncate on work.chunk
    for each statement execute function work.never_deleted();

-- A host keeps its domain64 and its name forever; the domain64 is also the key of the guestbook.
create function work.never_renumbered() returns trigger
    language plpgsql
as $$
begin
    raise restrict_violation using message = 'a host keeps its number and its name';
end
$$;

create trigger hosts_are_never_renumbered before update of domain64, name on work.hosts
    for each row when (old.domain64 <> new.domain64 or old.name <> new.name) execute function work.never_renumbered();
