-- Feeds that pages of a host link to, as candidates for subscriptions.
create table work.feed_offer (
    url text collate "C" primary key constraint feed_offer_url_short check (octet_length(url) between 1 and 2100),
    domain64 bigint not null references work.hosts (domain64),
    found_at timestamptz not null,
    seen_at timestamptz not null
);

comment on column work.feed_offer.domain64 is 'The host of the page that offers it, which may be another than the feed''s.';
comment on column work.feed_offer.seen_at is 'When a page offered it last, to the day.';

create index feed_offer_of_host on work.feed_offer (domain64);
