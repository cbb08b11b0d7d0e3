-- name: say
-- What a run says of itself.
update control.job set message = %(message)s
where id = %(id)s and claim = %(claim)s and state = 'running'
returning id;

-- name: put_output
-- The output of a run so far.
update control.job set output = %(output)s
where id = %(id)s and claim = %(claim)s and state = 'running'
returning id;

-- name: put_result
-- The result of a run.
select control.put_results(array[%(id)s::bigint], array[%(claim)s::uuid], array[%(result)s::text], %(now)s);

-- name: foreign
-- Those of these jobs that are not children of a run.
select g.id
from unnest(%(needs)s::bigint[]) as g (id)
where not exists (select from control.job_hierarchy h where h.job_id = g.id and h.parent_job_id = %(parent)s)
limit 1;

-- name: hold
-- Keeps a run from ending until what it does is written down.
select id from control.job
where id = %(id)s and claim = %(claim)s and state = 'running'
for share;

-- name: wrote
-- The rows that a run wrote.
insert into control.job_table_item (job_id, table_name, table_row_id, "timestamp")
select %(id)s, %(table)s, r, %(now)s
from unnest(%(rows)s::text[]) r;

-- name: strangers
-- Those of these numbers that are no job's, neither in the queue nor in the log.
select g.id
from unnest(%(ids)s::bigint[]) as g (id)
where not exists (select from control.job j where j.id = g.id)
    and not exists (select from control.job_log j where j.id = g.id);

-- name: descend
-- Writes down whose children those jobs are.
select control.descend(array_agg(g.child), g.parent, %(by_run)s)
from unnest(%(children)s::bigint[], %(parents)s::bigint[]) as g (child, parent)
group by g.parent;

-- name: held
-- Those of these runs whose claims hold, with what decides what an exit code means.
select j.id, j.type, j.program, j.attempts, j.max_attempts, j.cancel
from unnest(%(ids)s::bigint[], %(claims)s::uuid[]) as g (id, claim)
join control.job j on j.id = g.id and j.claim = g.claim
where j.state = 'running';
