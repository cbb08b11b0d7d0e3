-- name: enqueue
-- Adds jobs. An array that is null stands for a column of defaults.
insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, data)
select
    g.type, g.program, coalesce(g.args::text[], '{}'), coalesce(g.scheduled, %(now)s),
    case when g.resource is not null then control.resource_id(g.resource) end, coalesce(g.priority, 0),
    coalesce(g.host_rule, ''), g.data
from unnest(
    %(types)s::text[], %(programs)s::text[], %(args)s::text[], %(scheduled)s::timestamptz[], %(resources)s::text[],
    %(priorities)s::smallint[], %(host_rules)s::text[], %(data)s::text[]
) as g (type, program, args, scheduled, resource, priority, host_rule, data)
returning id;

-- name: enqueue_keyed
-- The same for jobs of which some have a key; a job whose key is live already is left out. A separate statement, because
-- the conflict clause costs each row 10 % more time and 17 % more WAL.
insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, data, unique_key)
select
    g.type, g.program, coalesce(g.args::text[], '{}'), coalesce(g.scheduled, %(now)s),
    case when g.resource is not null then control.resource_id(g.resource) end, coalesce(g.priority, 0),
    coalesce(g.host_rule, ''), g.data, g.key
from unnest(
    %(types)s::text[], %(programs)s::text[], %(args)s::text[], %(scheduled)s::timestamptz[], %(resources)s::text[],
    %(priorities)s::smallint[], %(host_rules)s::text[], %(data)s::text[], %(keys)s::text[]
) as g (type, program, args, scheduled, resource, priority, host_rule, data, key)
on conflict (unique_key) where unique_key is not null do nothing
returning id, unique_key;

-- name: keyed
-- The live jobs that have these keys.
select unique_key, id from control.job where unique_key = any(%(keys)s);

-- name: record_children
-- Records the parent of jobs.
select control.record_children(%(children)s::bigint[], %(parent)s, false);

-- name: add_needs
-- Makes new jobs wait until those they need have completed.
select control.wait_for(%(jobs)s::bigint[], %(needs)s::bigint[]);

-- name: claim
-- Claims up to n jobs for this machine, each with a lease.
select c.id, c.type, c.program, c.args, c.claim, c.attempts, c.task_id, c.resource_id, c.priority, c.scheduled, c.data
from control.claim(%(type)s, %(host)s, %(n)s, %(lease)s, %(max_attempts)s, %(now)s) c;

-- name: origins
-- The runs that added claimed jobs. A separate statement, because control.claim sees jobs that were committed after the
-- statement around it began; that statement would not see their hierarchy. The limit keeps it at one index entry a job.
select c.id, o.origin_type, o.origin_program
from unnest(%(ids)s::bigint[]) as c (id)
cross join lateral (
    select h.origin_type, h.origin_program from control.job_hierarchy h where h.job_id = c.id limit 1
) o;

-- name: next_due
-- When the next job of the type is due on this machine; null if there is none.
select control.next_due(%(type)s, %(host)s);

-- name: settle
-- Ends runs; returns the ids of those whose claim is no longer valid.
select unnest(%(ids)s::bigint[])
except
select control.settle(
    %(ids)s::bigint[], %(claims)s::uuid[], %(states)s::text[], %(exit_codes)s::integer[], %(pids)s::integer[],
    %(messages)s::text[], %(default_messages)s::text[], %(outputs)s::text[], %(retries)s::timestamptz[], %(now)s
);

-- name: store_results
-- Stores the results of runs whose claims are valid.
select control.put_results(%(ids)s::bigint[], %(claims)s::uuid[], %(results)s::text[], %(now)s);

-- name: report_starts
-- Records when the processes of runs started.
select control.report_starts(%(ids)s::bigint[], %(claims)s::uuid[], %(starts)s::timestamptz[]);

-- name: give_back
-- Returns claimed jobs that were not run, without counting an attempt.
select control.give_back(%(ids)s::bigint[], %(claims)s::uuid[], %(now)s);

-- name: extend
-- Extends the leases of runs whose claims are valid; returns whether each is to be stopped. Locks the jobs by id, as
-- settle and cancel do.
with locked as (
    select j.id, j.claim from control.job j where j.id = any(%(ids)s::bigint[]) order by j.id for update
)
update control.job j
set lease_until = %(now)s::timestamptz + %(lease)s::interval, last_update = %(now)s
from locked
join unnest(%(ids)s::bigint[], %(claims)s::uuid[]) as g (id, claim) on g.id = locked.id and g.claim = locked.claim
where j.id = locked.id and j.state = 'running'
returning j.id, j.cancel;

-- name: cancelled
-- Those of these runs that are to be stopped.
select j.id
from unnest(%(ids)s::bigint[], %(claims)s::uuid[]) as g (id, claim)
join control.job j on j.id = g.id and j.claim = g.claim
where j.cancel and j.state = 'running';

-- name: clear_reused_pids
-- Clears these process ids from other runs on this machine: the id was reused, so that process has ended. Locks these
-- jobs and those to be reported, by id.
with locked as (
    select j.id from control.job j
    where j.id = any(%(ids)s::bigint[])
        or (j.state = 'running' and j.hostname = %(host)s and j.process_id = any(%(pids)s::integer[]))
    order by j.id
    for update
)
update control.job set process_id = null
where id in (select id from locked) and state = 'running' and hostname = %(host)s and process_id = any(%(pids)s::integer[]) and claim <> all(%(claims)s::uuid[]);

-- name: report_progress
-- Sets the process ids and the output so far of runs. Locks the jobs by id.
with locked as (
    select j.id, j.claim from control.job j where j.id = any(%(ids)s::bigint[]) order by j.id for update
)
update control.job j
set process_id = coalesce(g.pid, j.process_id), output = coalesce(g.output, j.output), last_update = %(now)s
from locked
join unnest(%(ids)s::bigint[], %(claims)s::uuid[], %(pids)s::integer[], %(outputs)s::text[])
    as g (id, claim, pid, output) on g.id = locked.id and g.claim = locked.claim
where j.id = locked.id and j.state = 'running';

-- name: waiting_types
-- The types that have a pending job; the recursion skips from type to type by the index.
with recursive types as (
    (select type from control.job where state = 'pending' order by type limit 1)
  union all
    select next.type from types
    cross join lateral (
        select j.type from control.job j where j.state = 'pending' and j.type > types.type order by j.type limit 1
    ) next
)
select type::text from types;

-- name: cancel
-- Cancels waiting jobs, and asks managers to stop running ones.
select id, state from control.cancel(%(ids)s::bigint[], %(reason)s, %(now)s);
