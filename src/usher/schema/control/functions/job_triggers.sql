-- Records the time of every change that does not set it itself.
create function control.set_last_update() returns trigger
    language plpgsql
as $$
begin
    new.last_update := now();
    return new;
end
$$;

create trigger job_is_touched before update on control.job
    for each row when (old.last_update = new.last_update) execute function control.set_last_update();

-- New jobs wake the managers, unless they are due later than in a minute: a poll finds those.
create function control.notify_managers() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    perform pg_notify('usher_job', soon.type)
    from (select distinct type from fresh where scheduled <= now() + interval '1 minute') soon;
    return null;
end
$$;

create trigger job_rings after insert on control.job
    referencing new table as fresh for each statement execute function control.notify_managers();
