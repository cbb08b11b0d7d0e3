-- A database that was restored has another history than its components. The incarnation tells them: it changes with every
-- restore, and a component that sees a new one compares what it holds with what the database believes.
create table work.incarnation (
    id uuid not null,
    since timestamptz not null,
    reason text not null,
    is_current boolean primary key default true,
    constraint incarnation_is_one_row check (is_current)
);

comment on table work.incarnation is 'One row. The id changes when the database is restored: see work.begin_incarnation.';

-- A database that was never restored.
insert into work.incarnation (id, since, reason) values (gen_random_uuid(), now(), 'created');

-- Chunks that were searchable in the database as it was restored, until every row has them again, or their pages were
-- crawled again because no copy is left. As long as a row lacks one, its answers are partial.
create table work.unrestored (
    chunk_id bigint primary key references work.chunk (id)
);
