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

comment on column feeds.enclosure.mime_real is 'The real MIME type, for a job that checks it.';

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

-- Thumbnails of a medium or of an item.
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
