-- Subscriptions, written by the operator. Polls change only the URL of a feed that moved and the state of one that is gone.
create table feeds.feed_metadata (
    id bigint generated always as identity primary key,
    feed_id bigint unique references feeds.feed (id) on delete set null,
    url text not null unique,
    title text not null default '',
    site text not null default '',
    class text not null default 'text' constraint feed_metadata_class_known check (class in ('text', 'audio', 'video')),
    language text,
    kind text not null default 'full' constraint feed_metadata_kind_known check (kind in ('full', 'partial')),
    partial_args text[] not null default '{}',
    tags text[] not null default '{}',
    cleanup boolean not null default false,
    cleanup_learn boolean not null default false,
    cleanup_train_size integer not null default 10 constraint feed_metadata_train_size_sane check (cleanup_train_size > 0),
    cleanup_max_duplicates integer not null default 2
        constraint feed_metadata_duplicates_sane check (cleanup_max_duplicates > 0),
    cleanup_threshold double precision not null default 0.1
        constraint feed_metadata_threshold_sane check (cleanup_threshold > 0 and cleanup_threshold <= 1),
    cleanup_model jsonb,
    notes text not null default '',
    period interval constraint feed_metadata_period_positive check (period > interval '0'),
    knocks boolean not null default true,
    state text not null default 'enabled'
        constraint feed_metadata_state_known check (state in ('enabled', 'disabled', 'gone')),
    reason text not null default '',
    task_id bigint,
    added_at timestamptz not null
);

comment on column feeds.feed_metadata.kind is 'partial: jobs fetch the pages of its items.';
comment on column feeds.feed_metadata.cleanup is 'Whether a task cleans its items.';
comment on column feeds.feed_metadata.cleanup_learn is 'Whether the cleaning job learns the template of its pages.';
comment on column feeds.feed_metadata.cleanup_model is 'The template of its pages as JSON, validated whenever it is read.';
comment on column feeds.feed_metadata.period is 'The poll interval of the operator; null: automatic.';
comment on column feeds.feed_metadata.knocks is 'Whether the links of its items knock at the door.';
comment on column feeds.feed_metadata.task_id is 'The task in control.task; no foreign key, because that may be another database.';

create index feed_metadata_tags on feeds.feed_metadata using gin (tags);
