-- Records the parent of jobs, and the task at the root. Jobs that a run adds (by_run) originate from it. A job that an
-- operator adds below another, as a retry does, keeps the origin of that one.
create function control.record_children(children bigint[], parent bigint, by_run boolean) returns void
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

-- Jobs that a worker adds, by any statement, become children of its own job.
create function control.record_origin() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    if control.is_worker() then
        perform control.record_children(array(select id from fresh), control.my_job(), true);
    end if;
    return null;
end
$$;

create trigger job_has_origin after insert on control.job
    referencing new table as fresh for each statement execute function control.record_origin();
