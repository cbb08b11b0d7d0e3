-- What happened to components and chunks, and what operators did in the console. The watchdog deletes old rows.
create table work.event (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    component_id bigint references work.component (id),
    chunk_id bigint,
    kind text not null,
    before text,
    after text,
    reason text not null default '',
    actor text,
    subject text,
    command text
);

comment on column work.event.actor is 'The token of the operator who acted in the console; null for everything else.';
comment on column work.event.subject is 'What the operator acted on: a host, a URL, the number of a job, the name of a token.';
comment on column work.event.command is 'The command line with the same effect.';


create index event_of_component on work.event (component_id, id);
-- Reports of foreign pages: found by chunk, to record each once, and by time, for `usher status`.
create index event_foreign_pages on work.event (chunk_id) where kind = 'foreign_pages';
create index event_foreign_pages_at on work.event (at) where kind = 'foreign_pages';
-- Crashes of local processes, for `usher status`.
create index event_crashed_at on work.event (at) where kind = 'crashed';
-- What operators did, for the list of the console.
create index event_by_actor on work.event (id) where actor is not null;
create index event_at on work.event (at);
