-- migrate:up

-- What keeps a crawl out of traps: how far a page is from where the crawl came in, and how many pages a host may have.
alter table work.house
    add max_pages integer not null default 1000000 constraint house_max_pages_positive check (max_pages > 0),
    add max_depth smallint not null default 20 constraint house_max_depth_not_negative check (max_depth >= 0);

alter table work.hosts
    add max_pages integer constraint hosts_max_pages_positive check (max_pages > 0),
    add max_depth smallint constraint hosts_max_depth_not_negative check (max_depth >= 0),
    add pages integer not null default 0 constraint hosts_pages_not_negative check (pages >= 0);

comment on column work.hosts.max_pages is 'How many pages may be known of it; null for the house''s.';
comment on column work.hosts.max_depth is 'How many clicks a new page may be from where the crawl came in; null for the house''s.';
comment on column work.hosts.pages is 'At least so many pages are known: counted when it had as many as it may, else 0.';

alter table work.guestbook
    add depth smallint not null default 0 constraint guestbook_depth_not_negative check (depth >= 0);

comment on column work.guestbook.depth is 'Clicks from where a crawl came in, by the shortest way that was found.';

-- Session ids and the order of parameters make many URLs of one page. A list that somebody has changed is theirs. The
-- revision stays: programs of the version before know no such rules, and shall not ask for them while they run.
update work.house set filters = filters || '[
    {"name": "sessions", "rule": "sessions"},
    {"name": "permutations", "rule": "order"}
]'
where filters = '[
    {"name": "long", "rule": "length", "most": 1000},
    {"name": "loops", "rule": "repeats", "most": 3},
    {"name": "media", "rule": "extension", "any": ["avif", "bmp", "eps", "gif", "heic", "ico", "jpeg", "jpg",
        "png", "psd", "svg", "tif", "tiff", "webp", "eot", "otf", "ttf", "woff", "woff2", "aac", "avi", "flac",
        "flv", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "ogg", "ogv", "wav", "webm", "wma",
        "wmv"]},
    {"name": "downloads", "rule": "extension", "any": ["7z", "apk", "bin", "bz2", "deb", "dmg", "exe", "gz",
        "iso", "jar", "msi", "pkg", "rar", "rpm", "tar", "tgz", "xz", "zip", "zst", "doc", "docx", "epub",
        "odp", "ods", "odt", "ppt", "pptx", "xls", "xlsx"]}
]';

-- migrate:down

-- Rules that only this version knows must go, in whatever list they stand.
update work.house set filters = coalesce(
    (
        select jsonb_agg(one order by place) from jsonb_array_elements(filters) with ordinality as f (one, place)
        where coalesce(one ->> 'rule', '') not in ('sessions', 'order')
    ), '[]'
);
update work.hosts set filters = coalesce(
    (
        select jsonb_agg(one order by place) from jsonb_array_elements(filters) with ordinality as f (one, place)
        where coalesce(one ->> 'rule', '') not in ('sessions', 'order')
    ), '[]'
)
where filters <> '[]';
alter table work.guestbook drop depth;
alter table work.hosts drop max_pages, drop max_depth, drop pages;
alter table work.house drop max_pages, drop max_depth;
