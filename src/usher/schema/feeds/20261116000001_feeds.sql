-- migrate:up

-- Numbers that feeds tell us, whatever they are, as columns can hold them; what is not told stays unknown.
create function feeds.bounded4(n numeric) returns integer
    language sql immutable strict
return least(n, 2147483647)::integer;

create function feeds.bounded8(n numeric) returns bigint
    language sql immutable strict
return least(n, 9223372036854775807)::bigint;

-- What a feed says about itself.
create table feeds.feed (
    id bigint generated always as identity primary key,
    url text not null unique,
    title text not null default '',
    description text not null default '',
    link text not null default '',
    guid text not null default '',
    language text not null default '',
    copyright text not null default '',
    generator text not null default '',
    type text not null default '',
    encoding text not null default '',
    class text not null default 'text' constraint feed_class_known check (class in ('text', 'audio', 'video')),
    favicon text not null default '',
    hub text not null default '',
    ttl interval,
    update_period interval,
    skip_hours smallint[] not null default '{}',
    skip_days smallint[] not null default '{}',
    etag text not null default '',
    lastmod text not null default '',
    body_hash uuid,
    hash uuid,
    problems text[] not null default '{}',
    pub_date timestamptz,
    first_date timestamptz not null,
    mod_date timestamptz not null
);

comment on column feeds.feed.body_hash is 'Of the bytes that were stored last: the same bytes bring nothing new.';
comment on column feeds.feed.pub_date is 'What the feed says; first_date is when we saw it first.';
comment on column feeds.feed.mod_date is 'When it last said something else about itself.';

-- What the operator says about a feed. Polls write here only where it moved, and that it is gone.
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

comment on column feeds.feed_metadata.period is 'How often it is polled; null: at its own pace.';
comment on column feeds.feed_metadata.knocks is 'Whether the links of its items knock at the door.';
comment on column feeds.feed_metadata.task_id is 'In control.task; no key, as that may be another database.';

create index feed_metadata_tags on feeds.feed_metadata using gin (tags);

-- How the polls of a feed went.
create table feeds.feed_poll (
    metadata_id bigint primary key references feeds.feed_metadata (id) on delete cascade,
    host text not null,
    polled_at timestamptz not null,
    succeeded_at timestamptz,
    silent boolean not null,
    status integer,
    errors integer not null constraint feed_poll_errors_not_negative check (errors >= 0),
    error text not null,
    new_items integer not null,
    period interval not null,
    next_at timestamptz not null,
    why text not null,
    polls bigint not null default 1,
    unmodified bigint not null default 0
);

comment on column feeds.feed_poll.silent is 'Nobody answered at all: their fault, or ours.';
comment on column feeds.feed_poll.errors is 'How many polls failed since the last that did not.';

create index feed_poll_latest on feeds.feed_poll (polled_at);

create table feeds.feed_item (
    id bigint generated always as identity primary key,
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    key uuid not null,
    link_key uuid,
    hash uuid not null,
    guid text,
    permalink boolean not null,
    link text not null,
    title text not null,
    title_type text not null,
    summary text not null,
    summary_type text not null,
    content text not null,
    content_type text not null,
    content_clean text,
    content_clean_html text,
    comments_url text,
    comments_count bigint,
    pub_date timestamptz not null,
    updated timestamptz,
    mod_date timestamptz not null,
    fetch_date timestamptz not null,
    copyright text not null,
    language text not null,
    image text not null,
    knocked boolean not null default false,
    constraint feed_item_once unique (feed_id, key)
);

comment on column feeds.feed_item.key is 'What it is known by in its feed: of its guid, else its link, else its text.';
comment on column feeds.feed_item.hash is 'Of all that the feed says about it: another one is a change.';
comment on column feeds.feed_item.pub_date is 'What the feed says, else when we saw it first.';
comment on column feeds.feed_item.mod_date is 'When it last changed here; not taken from the feed.';
comment on column feeds.feed_item.fetch_date is 'When we saw it first.';
comment on column feeds.feed_item.content_clean is 'Made by a job of its own; polls leave it alone.';
comment on column feeds.feed_item.knocked is 'Whether its link has been to the door.';

create index feed_item_link_key on feeds.feed_item (feed_id, link_key);
create index feed_item_by_date on feeds.feed_item (pub_date desc, id desc);
create index feed_item_of_feed_by_date on feeds.feed_item (feed_id, pub_date desc, id desc);
create index feed_item_to_knock on feeds.feed_item (feed_id) where not knocked;

-- People, words, places and ratings, each once; `mark` is what makes one itself, however long it is.
create table feeds.author (
    id bigint generated always as identity primary key,
    fullname text not null,
    email text not null,
    link text not null,
    mark uuid not null unique
        generated always as (md5(fullname || E'\n' || email || E'\n' || link)::uuid) stored
);

create table feeds.category (
    id bigint generated always as identity primary key,
    term text not null,
    scheme text not null,
    label text not null,
    type text not null constraint category_type_known check (type in ('c', 'k')),
    mark uuid not null unique
        generated always as (md5(type || E'\n' || term || E'\n' || scheme || E'\n' || label)::uuid) stored
);

comment on column feeds.category.type is 'c: a category; k: a keyword.';

create index category_term on feeds.category (md5(lower(term)));

create table feeds.geo (
    id bigint generated always as identity primary key,
    latitude double precision not null,
    longitude double precision not null,
    name text not null,
    description text not null default '',
    mark uuid not null generated always as (md5(name)::uuid) stored,
    constraint geo_once unique (latitude, longitude, mark)
);

create table feeds.rating (
    id bigint generated always as identity primary key,
    scheme text not null,
    value text not null,
    mark uuid not null unique generated always as (md5(scheme || E'\n' || value)::uuid) stored
);

-- What belongs to one feed.

create table feeds.feed_link (
    id bigint generated always as identity primary key,
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    relation text not null,
    link text not null,
    type text not null,
    title text not null,
    language text not null
);
create index feed_link_feed on feeds.feed_link (feed_id);

create table feeds.feed_image (
    id bigint generated always as identity primary key,
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    kind text not null constraint feed_image_kind_known check (kind in ('image', 'logo', 'icon')),
    url text not null,
    title text not null,
    width integer,
    height integer,
    description text not null,
    link text not null
);
create index feed_image_feed on feeds.feed_image (feed_id);

-- What belongs to one item.

create table feeds.feed_item_link (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    relation text not null,
    link text not null,
    type text not null,
    title text not null,
    language text not null
);
create index feed_item_link_item on feeds.feed_item_link (feed_item_id);

create table feeds.feed_item_comment (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    guid text,
    comment text not null,
    author text not null default '',
    author_id bigint references feeds.author (id),
    pub_date timestamptz not null,
    mod_date timestamptz not null
);
create unique index feed_item_comment_once on feeds.feed_item_comment (feed_item_id, md5(guid)) where guid is not null;
create index feed_item_comment_item on feeds.feed_item_comment (feed_item_id);
create index feed_item_comment_by_date on feeds.feed_item_comment (pub_date);
create index feed_item_comment_author on feeds.feed_item_comment (author_id) where author_id is not null;

create table feeds.feed_item_event (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    "start" timestamptz,
    "end" timestamptz,
    title text not null,
    description text not null default '',
    location text not null
);
create index feed_item_event_item on feeds.feed_item_event (feed_item_id);

create table feeds.feed_item_option (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    "option" text not null,
    value text not null,
    mod_date timestamptz not null,
    constraint feed_item_option_once unique (feed_item_id, "option")
);

-- Media. An enclosure keeps its number as long as its item has it.

create table feeds.enclosure (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    guid text,
    link text not null,
    mark uuid not null generated always as (md5(link)::uuid) stored,
    title text not null,
    description text not null,
    medium text not null,
    expression text not null,
    mime text not null,
    mime_real text,
    language text not null,
    filesize bigint,
    duration bigint,
    width integer,
    height integer,
    bit_rate double precision,
    frame_rate double precision,
    sampling_rate double precision,
    audio_channels integer,
    copyright_url text not null,
    copyright_attribution text not null,
    pub_date timestamptz not null,
    mod_date timestamptz not null,
    constraint enclosure_once unique (feed_item_id, mark)
);

comment on column feeds.enclosure.mime_real is 'What it turned out to be; for a job that looks.';

create table feeds.enclosure_caption (
    id bigint generated always as identity primary key,
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    link text not null default '',
    format text not null default 'native'
        constraint enclosure_caption_format_known check (format in ('machine', 'native')),
    language text not null,
    type text not null,
    time_start double precision,
    time_end double precision,
    caption text not null
);
create index enclosure_caption_enclosure on feeds.enclosure_caption (enclosure_id);

create table feeds.enclosure_credit (
    id bigint generated always as identity primary key,
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    role text not null,
    scheme text not null,
    credit text not null
);
create index enclosure_credit_enclosure on feeds.enclosure_credit (enclosure_id);

create table feeds.enclosure_restriction (
    id bigint generated always as identity primary key,
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    type text not null,
    relationship text not null
        constraint enclosure_restriction_relationship_known check (relationship in ('allow', 'deny')),
    restriction text not null
);
create index enclosure_restriction_enclosure on feeds.enclosure_restriction (enclosure_id);

-- Of a medium, or of an item itself.
create table feeds.thumbnail (
    id bigint generated always as identity primary key,
    feed_item_id bigint references feeds.feed_item (id) on delete cascade,
    enclosure_id bigint references feeds.enclosure (id) on delete cascade,
    url text not null,
    width integer,
    height integer,
    "time" double precision,
    constraint thumbnail_of_one check ((feed_item_id is null) <> (enclosure_id is null))
);
create index thumbnail_item on feeds.thumbnail (feed_item_id) where feed_item_id is not null;
create index thumbnail_enclosure on feeds.thumbnail (enclosure_id) where enclosure_id is not null;

-- Who belongs to what.
create table feeds.feed2author (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    author_id bigint not null references feeds.author (id),
    type text not null default 'a' constraint feed2author_type_known check (type in ('a', 'c')),
    primary key (feed_id, author_id, type)
);
create index feed2author_reverse on feeds.feed2author (author_id, feed_id);

create table feeds.feed_item2author (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    author_id bigint not null references feeds.author (id),
    type text not null default 'a' constraint feed_item2author_type_known check (type in ('a', 'c')),
    primary key (feed_item_id, author_id, type)
);
create index feed_item2author_reverse on feeds.feed_item2author (author_id, feed_item_id);

create table feeds.feed2category (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (feed_id, category_id)
);
create index feed2category_reverse on feeds.feed2category (category_id, feed_id);

create table feeds.feed_item2category (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (feed_item_id, category_id)
);
create index feed_item2category_reverse on feeds.feed_item2category (category_id, feed_item_id);

create table feeds.enclosure2category (
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (enclosure_id, category_id)
);
create index enclosure2category_reverse on feeds.enclosure2category (category_id, enclosure_id);

create table feeds.feed2rating (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (feed_id, rating_id)
);
create index feed2rating_reverse on feeds.feed2rating (rating_id, feed_id);

create table feeds.feed_item2rating (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (feed_item_id, rating_id)
);
create index feed_item2rating_reverse on feeds.feed_item2rating (rating_id, feed_item_id);

create table feeds.enclosure2rating (
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (enclosure_id, rating_id)
);
create index enclosure2rating_reverse on feeds.enclosure2rating (rating_id, enclosure_id);

create table feeds.feed2geo (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (feed_id, geo_id)
);
create index feed2geo_reverse on feeds.feed2geo (geo_id, feed_id);

create table feeds.feed_item2geo (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (feed_item_id, geo_id)
);
create index feed_item2geo_reverse on feeds.feed_item2geo (geo_id, feed_item_id);

create table feeds.feed_item_event2geo (
    event_id bigint not null references feeds.feed_item_event (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (event_id, geo_id)
);
create index feed_item_event2geo_reverse on feeds.feed_item_event2geo (geo_id, event_id);

-- migrate:down

drop table
    feeds.feed_item_event2geo, feeds.feed_item2geo, feeds.feed2geo, feeds.enclosure2rating,
    feeds.feed_item2rating, feeds.feed2rating, feeds.enclosure2category, feeds.feed_item2category,
    feeds.feed2category, feeds.feed_item2author, feeds.feed2author, feeds.thumbnail,
    feeds.enclosure_restriction, feeds.enclosure_credit, feeds.enclosure_caption, feeds.enclosure,
    feeds.feed_item_option, feeds.feed_item_event, feeds.feed_item_comment, feeds.feed_item_link,
    feeds.feed_image, feeds.feed_link, feeds.rating, feeds.geo, feeds.category, feeds.author,
    feeds.feed_item, feeds.feed_poll, feeds.feed_metadata, feeds.feed;
drop function feeds.bounded8(numeric), feeds.bounded4(numeric);
