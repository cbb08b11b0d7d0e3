-- Queries of front ends. The watchdog deletes old ones and adds them up by day.
create table work.query_stat (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    term text not null,
    seconds double precision not null constraint query_stat_seconds_not_negative check (seconds >= 0),
    component_id bigint references work.component (id),
    results integer constraint query_stat_results_not_negative check (results >= 0)
);

comment on column work.query_stat.results is 'How many hits the first page could show; null if the front-end did not say.';

create index query_stat_at on work.query_stat (at);

-- Deleted queries, added up by day.
create table work.query_day (
    day date primary key,
    number bigint not null,
    seconds double precision not null,
    slowest double precision not null
);

-- The most frequent terms of each day.
create table work.query_day_term (
    day date not null references work.query_day (day) on delete cascade,
    term text not null,
    number bigint not null,
    seconds double precision not null,
    slowest double precision not null,
    latest timestamptz not null,
    primary key (day, term)
);
