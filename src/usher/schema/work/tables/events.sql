-- What happened to components and chunks. The watchdog deletes old rows.
create table work.event (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    component_id bigint references work.component (id),
    chunk_id bigint,
    kind text not null,
    before text,
    after text,
    reason text not null default ''
);

create index event_of_component on work.event (component_id, id);
-- Reports of foreign pages: found by chunk, to record each once, and by time, for `usher status`.
create index event_foreign_pages on work.event (chunk_id) where kind = 'foreign_pages';
create index event_foreign_pages_at on work.event (at) where kind = 'foreign_pages';
-- Crashes of local processes, for `usher status`.
create index event_crashed_at on work.event (at) where kind = 'crashed';
create index event_at on work.event (at);
