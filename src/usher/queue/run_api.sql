-- name: set_message
-- Sets the message of a run.
update control.job set message = %(message)s
where id = %(id)s and claim = %(claim)s and state = 'running'
returning id;

-- name: set_output
-- Sets the output of a run so far.
update control.job set output = %(output)s
where id = %(id)s and claim = %(claim)s and state = 'running'
returning id;

-- name: set_result
-- Sets the result of a run.
select control.put_results(array[%(id)s::bigint], array[%(claim)s::uuid], array[%(result)s::text], %(now)s);

-- name: other_jobs
-- One of these jobs that is not a child of the run.
select g.id
from unnest(%(needs)s::bigint[]) as g (id)
where not exists (select from control.job_hierarchy h where h.job_id = g.id and h.parent_job_id = %(parent)s)
limit 1;

-- name: lock_claim
-- Keeps a run from ending until the transaction ends; returns no row if the claim is no longer valid.
select id from control.job
where id = %(id)s and claim = %(claim)s and state = 'running'
for share;

-- name: record_written_rows
-- Records the rows that a run wrote.
insert into control.job_table_item (job_id, table_name, table_row_id, "timestamp")
select %(id)s, %(table)s, r, %(now)s
from unnest(%(rows)s::text[]) r;

-- name: unknown_jobs
-- Those of these ids that are neither in the queue nor in the log.
select g.id
from unnest(%(ids)s::bigint[]) as g (id)
where not exists (select from control.job j where j.id = g.id)
    and not exists (select from control.job_log j where j.id = g.id);

-- name: record_children
-- Records the parents of jobs.
select control.record_children(array_agg(g.child), g.parent, %(by_run)s)
from unnest(%(children)s::bigint[], %(parents)s::bigint[]) as g (child, parent)
group by g.parent;

-- name: active_runs
-- Those of these runs whose claims are valid, with what decides what an exit code means.
select j.id, j.type, j.program, j.attempts, j.max_attempts, j.cancel
from unnest(%(ids)s::bigint[], %(claims)s::uuid[]) as g (id, claim)
join control.job j on j.id = g.id and j.claim = g.claim
where j.state = 'running';
