-- Sessions of browsers in the console, and links that open one; only the hash is stored. A session of a token ends with the
-- token; one without a token belongs to the operator of the data directory. Each new row deletes those that have ended.
create table work.console_session (
    id bigint generated always as identity primary key,
    hash bytea not null unique,
    kind text not null constraint console_session_kind_known check (kind in ('link', 'session')),
    token_id bigint references work.token (id),
    created_at timestamptz not null,
    expires_at timestamptz not null,
    constraint console_session_ends check (expires_at <= created_at + interval '1 day')
);
