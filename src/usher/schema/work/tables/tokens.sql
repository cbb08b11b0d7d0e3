-- Tokens of callers from other machines; only the hash is stored. A token may expire, and belongs to one address.
create table work.token (
    id bigint generated always as identity primary key,
    name text not null unique constraint token_is_named check (name <> ''),
    hash bytea not null unique,
    scope text not null constraint token_scope_known check (scope in ('read', 'work', 'admin')),
    type text constraint token_type_known check (type in ('crawler', 'index-builder', 'index-server', 'front-end', 'manager')),
    address text constraint token_address_short check (address <> '' and length(address) <= 255),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    used_at timestamptz,
    revoked_at timestamptz,
    constraint token_work_has_type check (scope <> 'work' or type is not null)
);

comment on column work.token.address is
    'The host of the one component that may use it: set by the operator, or by the first call of the component.';
comment on column work.token.used_at is 'The last use, to the minute.';

-- The key that signs tickets; only MGMT may read it, and components get keys that are derived from it. One row.
create table work.ticket_key (
    is_only boolean primary key default true constraint ticket_key_is_only check (is_only),
    key bytea not null constraint ticket_key_long check (length(key) >= 32)
);

-- Two random UUIDs hold 244 random bits; PostgreSQL has no other source of them without an extension.
insert into work.ticket_key (key)
values (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
