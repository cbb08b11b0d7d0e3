-- name: limit_work
-- A script for pgbench: our claim and our settle, one transaction each.
select array_agg(id) as ids, array_agg(claim) as claims
from control.claim('noop', 'bench', :batch, interval '5 minutes', 4, now()) \gset
select count(*) from control.settle(
    :ids::bigint[], :claims::uuid[],
    array_fill('completed'::text, array[:batch::integer]), array_fill(0, array[:batch::integer]),
    null, null, null, null, null, now()
);

-- name: limit_enqueue
-- A script for pgbench: rows that the server generates.
insert into control.job (type, program) select 'noop', 'noop' from generate_series(1, :batch);

-- name: nothing
-- The worlds that a claim's cost is taken in begin here.
select;

-- name: pending
insert into control.job (type, program, scheduled)
select 'noop', 'noop', now() - interval '1 day' + n * interval '1 ms' from generate_series(1, :rows) n;

-- name: future
insert into control.job (type, program, scheduled)
select 'noop', 'noop', now() + interval '1 day' + n * interval '1 ms' from generate_series(1, :rows) n;

-- name: logged
insert into control.job_log (
    id, type, program, args, state, hostname, exit_code, scheduled, start, "end", last_update, attempts, priority,
    host_rule, cancel
)
select -n, 'noop', 'noop', '{}', 'completed', 'bench', 0, d, d, d, d, 1, 0, '', false
from generate_series(1, :rows) n
cross join lateral (select now() - n * interval '1 ms' as d) d;

-- name: busy
-- One job runs and uses the only capacity; most waiting jobs are held back already, the new ones are not.
insert into control.resource (name, "interval", running) values ('busy', '0', 1);
insert into control.job (type, program, state, resource_id, claim, lease_until)
select 'noop', 'noop', 'running', id, gen_random_uuid(), now() + interval '1 day' from control.resource;
insert into control.job (type, program, scheduled, resource_id, held_until)
select
    'noop', 'noop', now() - interval '1 day' + n * interval '1 ms', r.id,
    case when n <= :rows - :newcomers then 'infinity'::timestamptz end
from generate_series(1, :rows) n
cross join control.resource r;
