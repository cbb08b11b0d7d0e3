-- Settings of the whole queue; one row.
create table control.settings (
    one boolean primary key default true constraint settings_has_one_row check (one),
    log_keep interval not null default interval '90 days'
        constraint settings_log_keep_sane check (log_keep >= interval '1 day'),
    default_tasks_at timestamptz
);

comment on column control.settings.default_tasks_at is
    'When `usher up` added its tasks. It does so once, so that the operator can change and remove them.';

insert into control.settings default values;

-- The password of the login usher_worker, which the managers of this database share.
create table control.worker_login (
    one boolean primary key default true constraint worker_login_has_one_row check (one),
    password text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')
);

comment on table control.worker_login is 'A manager builds the database URL of its jobs from it; only managers may read it.';

insert into control.worker_login default values;
