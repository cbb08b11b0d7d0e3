-- The result of a job: a small JSON value that a run sets. A later value replaces an earlier one. It is a table of its
-- own, so that jobs without a result cost nothing.
create table control.job_result (
    job_id bigint primary key,
    attempt smallint not null,
    -- Clients accept 16 KB of compact JSON, which the text here, with its spaces, exceeds.
    value jsonb not null constraint job_result_is_small check (octet_length(value::text) <= 32768),
    set_at timestamptz not null default now()
);

comment on table control.job_result is 'Pruned with the log. `attempt` is the run that set the value.';
