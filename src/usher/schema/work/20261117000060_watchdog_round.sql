-- migrate:up

-- One row: the last complete round of the leading watchdog.
create table work.watchdog_round (
    is_only boolean primary key default true constraint watchdog_round_is_only check (is_only),
    ended_at timestamptz not null,
    seconds double precision not null,
    clock_skew_seconds double precision not null,
    machine text not null
);

comment on column work.watchdog_round.clock_skew_seconds is
    'How far the clock of the watchdog''s machine is ahead of the database''s.';

-- migrate:down
drop table work.watchdog_round;
