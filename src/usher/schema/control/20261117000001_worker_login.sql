-- migrate:up

-- The password of the login usher_worker, which the managers of this database share.
create table control.worker_login (
    one boolean primary key default true constraint worker_login_has_one_row check (one),
    password text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')
);
insert into control.worker_login default values;

comment on table control.worker_login is 'A manager builds the database URL of its jobs from it; only managers may read it.';

-- Whether the session belongs to a job, also inside functions that run with their owner's rights.
create function control.is_worker() returns boolean
    language sql stable
    return 'usher_worker' in (session_user::text, current_setting('role'));

-- The running job whose claim this session has; null if there is none.
create function control.claimed_job() returns bigint
    language sql stable security definer set search_path = ''
as $$
    select id from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint
$$;

create or replace function control.my_job() returns bigint
    language plpgsql stable security definer set search_path = ''
as $$
declare
    mine constant bigint := control.claimed_job();
begin
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have ended.';
    end if;
    return mine;
end
$$;

-- Policies of one command are joined by "or": each command has exactly one, so that none opens what another closes.
drop policy own_job on control.job;
drop policy new_job on control.job;
create policy job_select on control.job for select
    using (current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid);
create policy job_insert on control.job for insert
    with check (
        state = 'pending' and attempts = 0 and claim is null and lease_until is null and hostname is null
        and process_id is null and (current_user <> 'usher_worker' or control.my_job() is not null)
    );
create policy job_update on control.job for update
    using (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'temporary-error'
            else true
        end
    )
    with check (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'pending'
            else true
        end
    );
create policy job_delete on control.job for delete
    using (current_user not in ('usher_worker', 'usher_scheduler'));

-- Which run put a job in. The manager decides by it whether the program may run.
alter table control.job_hierarchy add origin_type text, add origin_program text;
comment on column control.job_hierarchy.origin_type is 'Type of the run that put the job in; null if an operator did.';
comment on column control.job_hierarchy.origin_program is 'Program of the run that put the job in.';

-- A worker sees its own row and those of its children. The trigger job_has_origin writes them.
alter table control.job_hierarchy enable row level security;
create policy job_hierarchy_own on control.job_hierarchy
    using (
        current_user <> 'usher_worker' or job_id = (select control.claimed_job())
        or parent_job_id = (select control.claimed_job())
    )
    with check (current_user <> 'usher_worker');

alter table control.job_table_item enable row level security;
create policy job_table_item_own on control.job_table_item
    using (current_user <> 'usher_worker' or job_id = (select control.claimed_job()))
    with check (current_user <> 'usher_worker' or job_id = (select control.claimed_job()));

-- Records the parent of jobs, and the task at the root. Jobs that a run puts in (by_run) originate from it. A job that
-- an operator puts below another, as a retry does, keeps the origin of that one.
drop function control.descend(bigint[], bigint);
create function control.descend(children bigint[], parent bigint, by_run boolean) returns void
    language sql set search_path = ''
as $$
    insert into control.job_hierarchy (job_id, parent_job_id, parent_task_id, origin_type, origin_program)
    select
        child, parent,
        coalesce(
            j.task_id,
            (select task_id from control.job_log where id = parent and task_id is not null limit 1),
            h.parent_task_id
        ),
        case when by_run then j.type else h.origin_type end,
        case when by_run then j.program else h.origin_program end
    from unnest(children) child
    left join control.job j on j.id = parent
    left join control.job_hierarchy h on h.job_id = parent
$$;

-- Jobs that a worker puts in, by whatever statement, become children of its own job.
create function control.record_origin() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    if control.is_worker() then
        perform control.descend(array(select id from fresh), control.my_job(), true);
    end if;
    return null;
end
$$;

create trigger job_has_origin after insert on control.job
    referencing new table as fresh for each statement execute function control.record_origin();

-- Puts a job in, below the caller's own job if the caller is a worker. A key that waits or runs already returns that job.
create or replace function control.enqueue(
    kind text, program text, args text[] default '{}', scheduled timestamptz default now(),
    resource text default null, priority integer default 0, host_rule text default '', key text default null,
    data text default null
) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    made bigint;
begin
    if control.is_worker() then
        perform control.my_job();
    end if;
    insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data)
    values (
        kind, enqueue.program, enqueue.args, enqueue.scheduled, control.resource_id(resource), enqueue.priority,
        enqueue.host_rule, key, enqueue.data
    )
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into made;
    return coalesce(made, (select id from control.job j where j.unique_key = key));
end
$$;

-- Prunes the log by the present time: a worker cannot choose how much is deleted.
create function control.prune_log() returns integer
    language plpgsql security definer set search_path = ''
as $$
begin
    perform control.my_job();
    return control.prune_log(now());
end
$$;

-- migrate:down

drop function control.prune_log();

create or replace function control.enqueue(
    kind text, program text, args text[] default '{}', scheduled timestamptz default now(),
    resource text default null, priority integer default 0, host_rule text default '', key text default null,
    data text default null
) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    parent bigint;
    made bigint;
begin
    if nullif(current_setting('usher.claim', true), '') is not null then
        parent := control.my_job();
    end if;
    insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data)
    values (
        kind, enqueue.program, enqueue.args, enqueue.scheduled, control.resource_id(resource), enqueue.priority,
        enqueue.host_rule, key, enqueue.data
    )
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into made;
    if made is null then
        return (select id from control.job j where j.unique_key = key);
    end if;
    if parent is not null then
        perform control.descend(array[made], parent);
    end if;
    return made;
end
$$;

drop trigger job_has_origin on control.job;
drop function control.record_origin(), control.descend(bigint[], bigint, boolean);

create function control.descend(children bigint[], parent bigint) returns void
    language sql set search_path = ''
as $$
    insert into control.job_hierarchy (job_id, parent_job_id, parent_task_id)
    select child, parent, coalesce(
        (select task_id from control.job where id = parent),
        (select task_id from control.job_log where id = parent and task_id is not null limit 1),
        (select parent_task_id from control.job_hierarchy where job_id = parent)
    )
    from unnest(children) child
$$;
revoke execute on function control.descend(bigint[], bigint) from public;

drop policy job_table_item_own on control.job_table_item;
alter table control.job_table_item disable row level security;
drop policy job_hierarchy_own on control.job_hierarchy;
alter table control.job_hierarchy disable row level security;
alter table control.job_hierarchy drop origin_type, drop origin_program;

drop policy job_delete on control.job;
drop policy job_update on control.job;
drop policy job_insert on control.job;
drop policy job_select on control.job;
create policy own_job on control.job
    using (current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid)
    with check (current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid);
create policy new_job on control.job for insert
    with check (state = 'pending' and claim is null and attempts = 0);

create or replace function control.my_job() returns bigint
    language plpgsql stable security definer set search_path = ''
as $$
declare
    mine bigint;
begin
    select id into mine from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint;
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have ended.';
    end if;
    return mine;
end
$$;

drop function control.claimed_job(), control.is_worker();
drop table control.worker_login;
