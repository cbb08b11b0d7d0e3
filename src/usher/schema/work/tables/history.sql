-- Figures for the charts of the console: one row for each metric and minute, hour or day. The watchdog writes and prunes them; MGMT
-- writes those of jobs, which may be in another database.
create table work.history (
    period text not null constraint history_period_known check (period in ('minute', 'hour', 'day')),
    metric text not null constraint history_metric_known check (metric in (
        'pages_indexed', 'pages_failed', 'pages_other', 'pages_waiting', 'seconds_to_search_p50', 'seconds_to_search_p95',
        'queries', 'query_seconds_p95', 'errors_4xx', 'errors_5xx', 'errors_timeout', 'errors_connection', 'errors_other',
        'jobs_waiting', 'jobs_running', 'jobs_completed', 'jobs_failed')),
    at timestamptz not null,
    number double precision not null constraint history_number_not_negative check (number >= 0),
    primary key (period, metric, at)
);

comment on column work.history.at is 'The start of the minute, hour or day.';
comment on column work.history.number is
    'Of pages and queries the number; of others a sample: the last one of a minute, the highest one of an hour or day.';
