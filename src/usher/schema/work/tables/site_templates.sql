-- The template of a site: lines of text that many pages of a host have (docs/search.md, ADR 0028). A sample of the host's pages is
-- stored, each with the hashes of its lines. A page that is crawled or built again replaces its row, so repetition is harmless.
create table work.sampled_page (
    domain64 bigint not null,
    page_id bigint not null,
    body integer not null,
    lines integer[] not null constraint sampled_page_lines_few check (cardinality(lines) <= 256),
    primary key (domain64, page_id)
);

comment on table work.sampled_page is 'At most 32 pages of each host (work.sample_rank), and the lines of their main text.';
comment on column work.sampled_page.body is 'Hash of the main text: pages with the same text count once.';
comment on column work.sampled_page.lines is 'Hashes of lines at the beginning and end of the main text.';

create table work.site_template (
    domain64 bigint primary key,
    lines integer[] not null default '{}' constraint site_template_lines_few check (cardinality(lines) <= 500),
    pages integer not null default 0,
    max_rank bigint,
    reindexed_pages integer not null default 0,
    is_stale boolean not null default true
);

comment on column work.site_template.lines is 'Hashes of the lines that builders move out of the main text.';
comment on column work.site_template.pages is 'Different pages of the sample when the lines were computed.';
comment on column work.site_template.max_rank is 'Pages with a higher work.sample_rank are not sampled; null while there is room.';
comment on column work.site_template.reindexed_pages is
    'The value of pages when the pages of the host were last scheduled to be indexed again.';
comment on column work.site_template.is_stale is 'The sample changed since the lines were computed.';

create index site_template_stale on work.site_template (domain64) where is_stale;
