-- Pages that the operator removed: which ones, by whom and why. Rows are never deleted: they are the record. A page is removed if
-- its host is `host` (or a subdomain of it) and its path is one of `paths` or begins with `prefix`. Both are canonical, so
-- http and https are the same page.
create table work.removal (
    id bigint generated always as identity primary key,
    target text collate "C" not null constraint removal_target_short check (octet_length(target) between 1 and 2300),
    host text collate "C" not null,
    subdomains boolean not null default false,
    paths text[] not null default '{}',
    prefix text collate "C" constraint removal_prefix_is_a_path check (starts_with(prefix, '/')),
    reason text not null constraint removal_has_a_reason check (reason <> '' and octet_length(reason) <= 4000),
    removed_by text not null constraint removal_has_an_author check (removed_by <> '' and octet_length(removed_by) <= 400),
    removed_at timestamptz not null,
    undone_by text constraint removal_undone_by_short check (undone_by <> '' and octet_length(undone_by) <= 400),
    undone_at timestamptz,
    swept_at timestamptz,
    swept_host bigint not null default 0,
    swept_path text collate "C" not null default '',
    pages bigint not null default 0,
    constraint removal_removes_something check (prefix is not null or paths <> '{}'),
    constraint removal_is_undone_by_someone check ((undone_at is null) = (undone_by is null))
);

comment on table work.removal is 'Pages that the operator removed. Rows are never deleted.';
comment on column work.removal.target is 'As the operator sees it: host and path, `*` at the end for all pages that begin with it.';
comment on column work.removal.swept_at is
    'When the watchdog had taken all pages out of the index, or after an undo had made them pending; null until then.';
comment on column work.removal.swept_host is 'The page after which the sweep continues, by host and path.';
comment on column work.removal.pages is 'How many pages the sweep changed.';

create unique index removal_of_target on work.removal (target) where undone_at is null;
create index removal_of_host on work.removal (host) where undone_at is null;
create index removal_to_sweep on work.removal (id) where swept_at is null;
