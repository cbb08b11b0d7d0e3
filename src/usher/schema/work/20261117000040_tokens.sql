-- migrate:up

-- Tokens expire and belong to one address; tickets are signed with a key that only MGMT may read.
alter table work.token
    add column expires_at timestamptz,
    add column address text constraint token_address_short check (address <> '' and length(address) <= 255),
    add constraint token_work_has_type check (scope <> 'work' or type is not null);

comment on column work.token.address is
    'The host of the one component that may use it: set by the operator, or by the first call of the component.';

-- One row. Components get keys that are derived from this one.
create table work.ticket_key (
    is_only boolean primary key default true constraint ticket_key_is_only check (is_only),
    key bytea not null constraint ticket_key_long check (length(key) >= 32)
);
-- Two random UUIDs hold 244 random bits; PostgreSQL has no other source of them without an extension.
insert into work.ticket_key (key)
values (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- migrate:down
drop table work.ticket_key;
alter table work.token drop constraint token_work_has_type, drop column expires_at, drop column address;
