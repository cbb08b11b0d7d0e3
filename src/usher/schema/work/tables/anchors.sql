-- What other pages call a page: one row for each text, with the linking pages that count (docs/crawl.md, ADR 0025). The linking
-- pages are sets, so a page that is crawled again counts once. Neither table has a foreign key to the guestbook, as for chunks: the
-- statements read the ids from it, and its rows are never deleted.
create table work.anchor (
    page_id bigint not null,
    seen_at timestamptz not null,
    own_pages bigint[] not null constraint anchor_own_pages_few check (cardinality(own_pages) <= 16),
    other_pages bigint[] not null constraint anchor_other_pages_few check (cardinality(other_pages) <= 16),
    text text collate "C" not null constraint anchor_text_short check (char_length(text) between 1 and 100),
    primary key (page_id, text)
);

comment on table work.anchor is 'The texts of links to a page, at most 20 for each page.';
comment on column work.anchor.page_id is 'The linked page.';
comment on column work.anchor.seen_at is 'When a crawler reported the text last, to a few days.';
comment on column work.anchor.own_pages is 'The linking pages of the same host, at most 16.';
comment on column work.anchor.other_pages is 'The linking pages of other hosts, at most 16.';

-- Room for the next linking pages on the same page of the table, so that no index changes.
alter table work.anchor set (fillfactor = 80);

-- What a builder was last told of the anchors of a page, and pages to index again.
create table work.anchored_page (
    page_id bigint primary key,
    indexed_inlinks integer not null default 0,
    reindex_at timestamptz,
    has_old_template boolean not null default false
);

comment on column work.anchored_page.indexed_inlinks is
    'Distinct linking pages (work.inlinks) when the anchors were last sent to a builder.';
comment on column work.anchored_page.reindex_at is 'When to index the page again; null if not.';
comment on column work.anchored_page.has_old_template is
    'The page is indexed again because of the template of its host (work.update_templates), whatever its anchors.';

create index anchored_page_reindex on work.anchored_page (reindex_at) where reindex_at is not null;
