"""Chunk files in the object store: where MGMT expects a file, what dead components take along, what is deleted."""

from datetime import timedelta

import pytest

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import House
from support.s3.server import OPERATOR, S3Server
from usher.backup.chunk_copies import needed_files
from usher.cli.actions.chunks_store import delete_unknown
from usher.db.clock import DatabaseClock
from usher.db.pool import Connection
from usher.errors import Conflict
from usher.mgmt import chunk_objects, chunks, compaction_merge, incarnation, placements
from usher.mgmt.chunk_objects import FIRST_OBJECT, ChunkObject, ObjectKind
from usher.mgmt.object_sweep import ObjectSweep
from usher.mgmt.store_owner import OWNER_KEY, adopt_store
from usher.mgmt.unknown_objects import unknown_objects
from usher.object_store.address import StoreAccess, StoreAddress
from usher.object_store.store import ObjectStore

HOUR = timedelta(hours=1)
SUM, OTHER_SUM = "a" * 64, "b" * 64


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


async def stored(house: House, kind: ObjectKind, chunk: int, sha256: str = SUM) -> ChunkObject:
    """An upload that was requested and reported, as the chunk's present file."""
    file = ChunkObject(kind, chunk, sha256)
    assert await chunk_objects.request_upload(house.conn, file, now=NOW)
    assert await chunk_objects.set_stored(house.conn, file, now=NOW)
    column = "sha256" if kind == "content" else "index_sha256"
    await house.run(f"update work.chunk set {column} = %s where id = %s", sha256, chunk)
    return file


async def unneeded(house: House) -> list[ChunkObject]:
    page = await chunk_objects.page_of_objects(
        house.conn, FIRST_OBJECT, latest_request=NOW - HOUR, n=100
    )
    return page.unneeded


async def test_a_dead_crawler_takes_along_only_what_it_did_not_store(house: House) -> None:
    safe = await house.fetch("/0")
    lost = await house.fetch("/1")
    await stored(house, "content", safe)
    gone = await chunks.recrawl(house.conn, house.crawler, why="it is gone", now=NOW, n=9)
    assert gone == [lost]
    assert await chunks.unpropagated(house.conn, house.crawler, n=9) == []
    [claimed] = await chunks.claim_builds(
        house.conn, house.builder, n=9, lease=HOUR, now=NOW, compact=False
    )
    assert (claimed.chunk_id, claimed.sha256, claimed.is_stored) == (safe, SUM, True)


async def test_a_dead_builder_takes_along_only_what_it_did_not_store(house: House) -> None:
    safe, lost = await house.crawl("/0", rows=()), await house.crawl("/1", rows=())
    await stored(house, "index", safe)
    assert await chunks.unpropagated(house.conn, house.builder, n=9) == [lost]
    wanted = {
        chunk.chunk_id: chunk.url
        for chunk in await placements.wanted(house.conn, house.servers[0], n=9)
    }
    assert wanted == {safe: chunk_objects.object_key("index", safe, SUM), lost: ""}
    assert await chunks.rebuild(house.conn, house.builder, why="it is gone") == [lost]


async def test_an_mgmt_without_the_store_gives_no_builder_what_is_in_it(house: House) -> None:
    inside, outside = await house.fetch("/0"), await house.fetch("/1")
    await stored(house, "content", inside)
    assert await chunk_objects.has_objects(house.conn)
    claimed = await chunks.claim_builds(
        house.conn, house.builder, n=9, lease=HOUR, now=NOW, with_store=False
    )
    assert [chunk.chunk_id for chunk in claimed] == [outside]


async def test_a_merge_takes_its_sources_from_the_store(house: House) -> None:
    merge = await house.begun(2)
    sources = await house.ask("select source_id from work.chunk_source order by 1")
    for (source,) in sources:
        await stored(house, "index", source)
    [chunk] = await house.claim()
    assert chunk == merge.chunk_id
    manifest = (await compaction_merge.manifest(house.conn, [chunk]))[chunk]
    assert [source.url for source in manifest] == [
        chunk_objects.object_key("index", source, SUM) for (source,) in sources
    ]


async def test_a_content_is_needed_until_every_row_has_the_chunk(house: House) -> None:
    chunk = await house.fetch("/0")
    content = await stored(house, "content", chunk)
    assert await unneeded(house) == []
    await house.claim(compact=False)
    await house.built(chunk)
    index = await stored(house, "index", chunk)
    await house.load(chunk, [0])
    assert await unneeded(house) == []
    await house.load(chunk, [1])
    assert await unneeded(house) == [content]
    await house.run("update work.chunk set index_state = 'retired' where id = %s", chunk)
    assert await unneeded(house) == [content, index]


async def test_an_index_with_removed_text_is_needed_until_every_row_has_it(house: House) -> None:
    chunk = await house.crawl("/0", rows=(0,))
    index = await stored(house, "index", chunk)
    [(page,)] = await house.ask("select id from work.guestbook where path = '/0'")
    await house.run(
        "update work.guestbook set removed = true, indexed_in = null where id = %s", page
    )
    await house.run(
        "insert into work.stale_copy (chunk_id, page_id, at, ready) values (%s, %s, %s, true)",
        *(chunk, page, NOW),
    )
    assert await unneeded(house) == []
    await house.load(chunk, [1])
    assert await unneeded(house) == [index]


async def test_an_upload_that_was_never_reported_is_needed_for_an_hour(house: House) -> None:
    chunk = await house.fetch("/0")
    file = ChunkObject("content", chunk, SUM)
    await chunk_objects.request_upload(house.conn, file, now=NOW - timedelta(minutes=59))
    assert await unneeded(house) == []
    await house.run("update work.chunk_object set requested_at = %s", NOW - HOUR)
    assert await unneeded(house) == [file]
    await chunk_objects.request_upload(house.conn, file, now=NOW)  # it tries again
    assert await unneeded(house) == []


async def test_a_file_that_is_being_deleted_is_not_uploaded(house: House) -> None:
    chunk = await house.fetch("/0")
    file = ChunkObject("content", chunk, SUM)
    await chunk_objects.request_upload(house.conn, file, now=NOW - 2 * HOUR)
    latest = NOW - HOUR
    marked = await chunk_objects.mark_unneeded(house.conn, [file], latest_request=latest)
    assert marked == [file]
    assert not await chunk_objects.request_upload(house.conn, file, now=NOW)
    assert not await chunk_objects.set_stored(house.conn, file, now=NOW)
    # The watchdog was killed: the next one repeats it.
    assert await unneeded(house) == [file]
    assert await chunk_objects.mark_unneeded(house.conn, [file], latest_request=latest) == [file]
    await chunk_objects.forget_deleted(house.conn, [file])
    assert await chunk_objects.request_upload(house.conn, file, now=NOW)


async def test_a_file_that_is_needed_again_is_not_deleted(house: House) -> None:
    chunk = await house.fetch("/0")
    file = ChunkObject("content", chunk, SUM)
    await chunk_objects.request_upload(house.conn, file, now=NOW - 2 * HOUR)
    assert await unneeded(house) == [file]
    await chunk_objects.request_upload(house.conn, file, now=NOW)
    latest = NOW - HOUR
    assert await chunk_objects.mark_unneeded(house.conn, [file], latest_request=latest) == []


async def test_a_backup_does_not_copy_what_is_in_the_store(house: House) -> None:
    inside, outside = await house.crawl("/0"), await house.crawl("/1")
    waiting = await house.fetch("/2")
    await stored(house, "index", inside)
    await stored(house, "content", waiting)
    assert [file.chunk_id for file in await needed_files(house.conn)] == [outside]


def open_bucket(server: S3Server, bucket: str) -> ObjectStore:
    access = StoreAccess(server.endpoint, "", OPERATOR.access_key, OPERATOR.secret_key)
    return ObjectStore(StoreAddress(bucket, "usher"), access, patience=1)


async def test_the_sweep_deletes_what_is_not_needed_and_nothing_else(
    house: House, s3_server: S3Server, bucket: str
) -> None:
    store = open_bucket(s3_server, bucket)
    chunk = await house.fetch("/0")
    kept = await stored(house, "content", chunk)
    old = ChunkObject("content", chunk, OTHER_SUM)
    await chunk_objects.request_upload(house.conn, old, now=NOW - 2 * HOUR)
    never_uploaded = ChunkObject("index", chunk, SUM)
    await chunk_objects.request_upload(house.conn, never_uploaded, now=NOW - 2 * HOUR)
    for file in (kept, old):
        await store.put_bytes(file.key, b"a file")
    sweep = ObjectSweep(store, DatabaseClock(), is_leading=lambda: True)
    assert await sweep.sweep(house.conn) == 2
    assert s3_server.requests.keys(bucket) == [f"usher/{kept.key}", f"usher/{OWNER_KEY}"]
    assert await house.ask("select kind, sha256 from work.chunk_object") == [("content", SUM)]
    assert await sweep.sweep(house.conn) == 0
    assert sweep.problem == ""


async def test_a_sweep_without_a_bucket_says_so_and_forgets_nothing(
    house: House, s3_server: S3Server
) -> None:
    chunk = await house.fetch("/0")
    await chunk_objects.request_upload(
        house.conn, ChunkObject("content", chunk, SUM), now=NOW - 2 * HOUR
    )
    sweep = ObjectSweep(
        open_bucket(s3_server, "no-such-bucket"), DatabaseClock(), is_leading=lambda: True
    )
    assert await sweep.sweep(house.conn) == 0
    assert "no bucket no-such-bucket" in sweep.problem
    assert await house.ask("select count(*) from work.chunk_object") == [(1,)]


async def test_only_the_owner_of_the_store_deletes_files(
    house: House, s3_server: S3Server, bucket: str
) -> None:
    """A restored copy with the same chunk_store, until the operator says that it replaces the original."""
    store = open_bucket(s3_server, bucket)
    sweep = ObjectSweep(store, DatabaseClock(), is_leading=lambda: True)
    assert await sweep.sweep(house.conn) == 0  # owns the empty store from now on
    old = ChunkObject("content", await house.fetch("/0"), OTHER_SUM)
    await chunk_objects.request_upload(house.conn, old, now=NOW - 2 * HOUR)
    await store.put_bytes(old.key, b"a file of the original")
    await incarnation.begin(house.conn, "restored")
    assert await sweep.sweep(house.conn) == 0
    assert "belongs to another database" in sweep.problem
    assert "usher chunks adopt-store" in sweep.problem
    with pytest.raises(Conflict, match="belongs to another database"):
        await delete_unknown(house.conn, store, dry_run=False, now=NOW)
    assert f"usher/{old.key}" in s3_server.requests.keys(bucket)
    await adopt_store(house.conn, store)
    assert await sweep.sweep(house.conn) == 1
    assert sweep.problem == ""
    assert s3_server.requests.keys(bucket) == [f"usher/{OWNER_KEY}"]


async def test_objects_that_no_row_names_are_found(
    house: House, s3_server: S3Server, bucket: str
) -> None:
    store = open_bucket(s3_server, bucket)
    known = await stored(house, "content", await house.fetch("/0"))
    lost = [ChunkObject("content", 77, SUM), ChunkObject("index", 77, OTHER_SUM)]
    for key in (known.key, "content/notes.txt", *(file.key for file in lost)):
        await store.put_bytes(key, b"a file")
    clock = DatabaseClock()
    await clock.sync(house.conn)
    now = clock.now()
    young = [page async for page in unknown_objects(house.conn, store, now=now)]
    assert [key for page in young for key in page.keys] == []
    pages = [page async for page in unknown_objects(house.conn, store, now=now + timedelta(days=2))]
    assert [key for page in pages for key in page.keys] == [file.key for file in lost]
    assert sum(page.size for page in pages) == 2 * len(b"a file")
