-- migrate:up

-- Copies of pages in chunks that are out of date: a newer text came in another chunk, or there is nothing to find any
-- more. Kept as long as the chunk, for any server may load it again.
create table work.outdated (
    page_id bigint not null,
    chunk_id bigint not null,
    newer bigint,
    at timestamptz not null,
    held boolean not null default false,
    ready boolean not null default false,
    primary key (chunk_id, page_id)
);

comment on column work.outdated.newer is 'The chunk with the newer text; null if the page is not to be found any more.';
comment on column work.outdated.held is 'Too much of the host would go at once: somebody has to look first.';
comment on column work.outdated.ready is 'Whether it was looked at by those who know how much of the host would go.';

create index outdated_page on work.outdated (page_id);
create index outdated_by on work.outdated (newer) where newer is not null;
create index outdated_to_judge on work.outdated (at) where newer is null and not ready and not held;
create index outdated_held on work.outdated (chunk_id) where held;

-- What each server is to take out of its index, until it says that it has.
create table work.retire (
    component_id bigint not null references work.component (id),
    chunk_id bigint not null,
    page_id bigint not null,
    primary key (component_id, chunk_id, page_id)
);

-- Whose server has a chunk, and may be told: those outdated copies of these chunks whose newer text its row has too.
create function work.retire_copies(chunks bigint[]) returns bigint
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    with due as (
        select p.component_id, o.chunk_id, o.page_id
        from work.outdated o
        join work.placement p on p.chunk_id = o.chunk_id and p.state in ('loaded', 'leaving')
        where (o.chunk_id = any(chunks) or o.newer = any(chunks))
            and (
                (o.newer is null and o.ready)
                or exists (
                    select from work.placement n
                    where n.chunk_id = o.newer and n."row" = p."row" and n.state in ('loaded', 'leaving')
                )
            )
        order by 1, 2, 3
    ), told as (
        insert into work.retire (component_id, chunk_id, page_id) select * from due
        on conflict do nothing
        returning 1
    )
    select count(*) from told;
$$;

-- migrate:down

drop function work.retire_copies(bigint[]);
drop table work.retire, work.outdated;
