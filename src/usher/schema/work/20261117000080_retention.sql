-- migrate:up

-- The watchdog prunes events and queries by age; deleted queries are summed up by day.
create index event_at on work.event (at);

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

-- migrate:down

drop table work.query_day_term, work.query_day;
drop index work.event_at;
