-- Chunk files in the object store, under keys that name kind, chunk and checksum, so that no upload replaces another file. MGMT
-- stores the row before a component gets the URL for the upload: no object exists without a row, whatever crashes. Only the
-- watchdog deletes objects.
create table work.chunk_object (
    kind text not null constraint chunk_object_kind_known check (kind in ('content', 'index')),
    chunk_id bigint not null references work.chunk (id),
    sha256 text not null,
    requested_at timestamptz not null,
    stored_at timestamptz,
    deleting boolean not null default false,
    primary key (kind, chunk_id, sha256)
);

comment on column work.chunk_object.requested_at is 'When a component last got a URL for the upload.';
comment on column work.chunk_object.stored_at is 'When the component reported the upload; null before.';
comment on column work.chunk_object.deleting is 'The watchdog deletes the object now, so there is no upload until the row is gone.';
