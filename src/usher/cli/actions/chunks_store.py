"""`usher chunks prune-store` and `adopt-store`: delete objects that the database does not know, and own the store."""

from datetime import datetime

from usher.cli.app import App, show_json
from usher.cli.area_access import call_in, call_now, mgmt_transaction
from usher.cli.output import echo
from usher.db.pool import Connection
from usher.errors import BadSetting
from usher.mgmt.store_owner import adopt_store, check_owner
from usher.mgmt.unknown_objects import UnknownObjects, unknown_objects
from usher.object_store.store import ObjectStore, open_store


async def delete_unknown(
    conn: Connection, /, store: ObjectStore, *, dry_run: bool, now: datetime
) -> UnknownObjects:
    """Delete the unknown objects page by page; returns all of them. Conflict if the store is not ours."""
    await check_owner(conn, store)
    keys, size = list[str](), 0
    async for page in unknown_objects(conn, store, now=now):
        keys += page.keys
        size += page.size
        if not dry_run:
            await store.delete(page.keys)
    return UnknownObjects(keys, size)


def open_chunk_store(app: App) -> ObjectStore:
    if not app.settings.chunk_store:
        raise BadSetting(
            "There is no object store.", hint="Set chunk_store, as in s3://bucket/usher."
        )
    return open_store(app.settings.chunk_store, app.settings)


def adopt_chunk_store(app: App) -> None:
    store = open_chunk_store(app)
    call_in(mgmt_transaction(app), adopt_store, store)
    app.say(f"{store.address} belongs to this database now.")


def prune_store(app: App, *, dry_run: bool, as_json: bool) -> None:
    store = open_chunk_store(app)
    unknown = call_now(mgmt_transaction(app), delete_unknown, store, dry_run=dry_run)
    if as_json:
        show_json({"deleted": not dry_run, "keys": unknown.keys, "bytes": unknown.size})
        return
    for key in unknown.keys:
        echo(f"{store.address}/{key}")
    verb = "would be deleted" if dry_run else "deleted"
    app.say(f"{len(unknown.keys)} objects with {unknown.size:,} bytes {verb}.")
