-- General settings of hosts that have none of their own, and of the index; one row. max_depth (clicks from the start of a crawl)
-- and max_pages (of one host) keep a crawl out of traps.
create table work.settings (
    is_only boolean primary key default true constraint settings_is_only check (is_only),
    revision integer not null default 1,
    cadence interval not null default interval '30 days' constraint settings_cadence_positive check (cadence > interval '0'),
    crawl_delay interval not null default interval '1 second'
        constraint settings_crawl_delay_not_negative check (crawl_delay >= interval '0'),
    max_pages integer not null default 1000000 constraint settings_max_pages_positive check (max_pages > 0),
    max_depth smallint not null default 20 constraint settings_max_depth_not_negative check (max_depth >= 0),
    filters jsonb not null default '[]' constraint settings_filters_are_a_list check (jsonb_typeof(filters) = 'array'),
    "rows" smallint not null default 1 constraint settings_rows_positive check ("rows" between 1 and 1000),
    placed_rows smallint not null default 0
);

comment on column work.settings.revision is 'Counts changes, so that doorkeepers notice that their cache is out of date.';
comment on column work.settings.placed_rows is 'For how many rows the placements of all chunks were last checked.';

-- The filters of a new installation; `usher hosts rules` shows and changes them. Session ids and the order of parameters
-- make many URLs of one page.
insert into work.settings (filters) values ('[
    {"name": "long", "rule": "length", "most": 1000},
    {"name": "loops", "rule": "repeats", "most": 3},
    {"name": "media", "rule": "extension", "any": ["avif", "bmp", "eps", "gif", "heic", "ico", "jpeg", "jpg",
        "png", "psd", "svg", "tif", "tiff", "webp", "eot", "otf", "ttf", "woff", "woff2", "aac", "avi", "flac",
        "flv", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "ogg", "ogv", "wav", "webm", "wma",
        "wmv"]},
    {"name": "downloads", "rule": "extension", "any": ["7z", "apk", "bin", "bz2", "deb", "dmg", "exe", "gz",
        "iso", "jar", "msi", "pkg", "rar", "rpm", "tar", "tgz", "xz", "zip", "zst", "doc", "docx", "epub",
        "odp", "ods", "odt", "ppt", "pptx", "xls", "xlsx"]},
    {"name": "sessions", "rule": "sessions"},
    {"name": "permutations", "rule": "order"}
]');
