grant usage on schema control to usher_manager, usher_scheduler, usher_worker, usher_reader;
grant select on control.schema_migrations to usher_manager, usher_scheduler, usher_worker, usher_reader;
grant select on control.job, control.job_log, control.task, control.resource, control.job_hierarchy,
    control.job_table_item, control.settings, control.job_result, control.job_dependency, control.paused_type
    to usher_manager, usher_reader;

-- Claims and settles jobs; the operator's commands and the HTTP API work as the manager too.
grant insert, update, delete on control.job to usher_manager;
grant insert on control.job_log, control.job_hierarchy, control.job_table_item to usher_manager;
grant insert, update, delete on control.task to usher_manager;
grant insert, update on control.resource to usher_manager;
grant update (log_keep, default_tasks_at) on control.settings to usher_manager;
grant insert, update, delete on control.paused_type to usher_manager;
grant execute on function
    control.claim(text, text, integer, interval, integer, timestamptz), control.next_due(text, text),
    control.settle(
        bigint[], uuid[], text[], integer[], integer[], text[], text[], text[], timestamptz[], timestamptz
    ),
    control.give_back(bigint[], uuid[], timestamptz), control.cancel(bigint[], text, timestamptz),
    control.wake_resources(bigint[], timestamptz), control.resource_id(text),
    control.record_children(bigint[], bigint, boolean),
    control.put_results(bigint[], uuid[], text[], timestamptz), control.wait_for(bigint[], bigint[]),
    control.report_starts(bigint[], uuid[], timestamptz[]), control.add_jobs(jsonb), control.job_status(bigint)
    to usher_manager;
grant select on control.worker_login to usher_manager;

-- Makes jobs of tasks, tries failed ones again, takes lost ones back, and cannot touch what a job is. What it puts in
-- is pending: it has no right to insert the columns of a run, and row security checks the row.
grant select on control.task, control.job, control.resource, control.settings to usher_scheduler;
grant insert (task_id, type, program, args, scheduled, resource_id, priority, host_rule, data) on control.job
    to usher_scheduler;
grant update (state, last_update) on control.job to usher_scheduler;
grant update (next_run) on control.task to usher_scheduler;
grant execute on function control.park_tasks(integer, timestamptz) to usher_scheduler;
grant execute on function control.requeue_lost(integer, timestamptz), control.repair_resources(timestamptz),
    control.create_log_partitions(integer, timestamptz) to usher_scheduler;

-- The login of jobs: sees its own job, its children and what it wrote (row security), sets its message, puts in jobs.
grant select, update (message) on control.job to usher_worker;
grant insert (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data) on control.job
    to usher_worker;
grant select on control.job_hierarchy, control.job_result, control.job_dependency to usher_worker;
grant select, insert (job_id, table_name, table_row_id) on control.job_table_item to usher_worker;
grant execute on function control.say(text), control.put_output(text), control.wrote(text, text[]),
    control.set_pace(interval), control.prune_log(),
    control.enqueue(text, text, text[], timestamptz, text, integer, text, text, text),
    control.enqueue_after(bigint[], text, text, text[], timestamptz, text, integer, text, text, text),
    control.put_result(jsonb), control.wait_for(bigint[], bigint[]), control.needed_results() to usher_worker;

-- Row security and host rules call these for every role.
grant execute on function control.may_run(text, text), control.is_worker(), control.claimed_job(), control.my_job(),
    control.inserted_job()
    to usher_manager, usher_scheduler, usher_worker, usher_reader;
