"""`usher backup`: create, verify and restore backups, and show their progress."""

import filecmp
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from usher.backup import bucket, contents
from usher.backup import create as creating
from usher.backup import restore as restoring
from usher.backup.contents import Backup, BackupInfo
from usher.backup.progress import OnProgress
from usher.cli.app import App, run, show_field, show_json
from usher.cli.output import display_time, echo
from usher.db.areas import AreaDatabases, configured_dsns, open_areas
from usher.errors import BadInput, Unreachable, UsherError
from usher.object_store.address import StoreAddress
from usher.object_store.store import open_store
from usher.private_files import OWNER_ONLY_UMASK
from usher.schema import databases, migrate
from usher.wording import counted, time_text

MEGABYTE = 1e6
BackupPlace = Path | StoreAddress


def create(app: App, place: BackupPlace, base: BackupPlace | None, *, as_json: bool) -> None:
    use_operator_login()
    os.umask(OWNER_ONLY_UMASK)  # pg_dump obeys it
    write = into_bucket if isinstance(place, StoreAddress) else into_directory
    creating.check_source(app.loaded, list(configured_dsns(app.settings).values()))
    start = time.monotonic()
    try:
        with open_areas(app.settings) as areas, progress(app) as on_progress:
            info, copied = run(write(app, areas, place, base, on_progress))
    except (UsherError, KeyboardInterrupt):
        if is_unfinished(app, place):
            app.say(f"The backup is unfinished. To continue it: usher backup create {place}")
        raise
    seconds = time.monotonic() - start
    if as_json:
        show_json({**asdict(info), "copied_bytes": copied, "seconds": round(seconds, 1)})
        return
    echo(f"{place}: complete after {seconds:.1f} s")
    show_info(info)


async def into_directory(
    app: App,
    areas: AreaDatabases,
    place: BackupPlace,
    base: BackupPlace | None,
    on_progress: OnProgress,
) -> tuple[BackupInfo, int]:
    if isinstance(base, StoreAddress):
        raise BadInput(f"{base} is not on the disk of {place}.", hint="--base DIR")
    earlier = contents.read_backup(base) if base else None
    return await creating.create(
        areas, app.loaded, Path(str(place)), base=earlier, on_progress=on_progress
    )


async def into_bucket(
    app: App,
    areas: AreaDatabases,
    place: BackupPlace,
    base: BackupPlace | None,
    on_progress: OnProgress,
) -> tuple[BackupInfo, int]:
    if isinstance(base, Path):
        raise BadInput(f"{base} is not in the bucket of {place}.", hint="--base s3://BUCKET/PREFIX")
    store = open_store(str(place), app.settings)
    earlier = open_store(str(base), app.settings) if base else None
    return await bucket.create_in_bucket(
        areas, app.loaded, store, base=earlier, on_progress=on_progress
    )


def is_unfinished(app: App, place: BackupPlace) -> bool:
    """Whether the next run can continue a backup that this run has begun."""
    if isinstance(place, StoreAddress):
        return bucket.has_uploads(app.settings.data.absolute(), place)
    return (place / contents.UNFINISHED_FILE).exists()


def show_info(info: BackupInfo) -> None:
    taken = time_text(datetime.fromisoformat(info.taken), display_time())
    show_field("taken", f"{taken} from {info.data} on {info.machine}")
    show_field("files", f"{counted(info.files, 'file')}, {info.bytes / MEGABYTE:,.1f} MB")
    if info.chunks or not info.stored:
        show_field("chunks", f"{info.chunks - info.missing:,} of {info.chunks:,}")
    if info.stored:
        field, noun = "" if info.chunks else "chunks", "more chunk" if info.chunks else "chunk"
        stored = counted(info.stored, noun)
        show_field(
            field, f"{stored}: the files are in the object store, which is not in the backup"
        )
    if info.missing:
        missing = counted(info.missing, "chunk")
        show_field("", f"{missing}: the files are on other machines or lost. After a restore,")
        show_field("", "Usher builds them or crawls their pages again.")
    show_field("settings", info.settings or "no file")
    if info.variables:
        show_field("", f"not in a file, so not in the backup: {', '.join(info.variables)}")


def verify(app: App, place: BackupPlace, *, as_json: bool) -> int:
    with progress(app) as on_progress:
        if isinstance(place, StoreAddress):
            store = open_store(str(place), app.settings)
            backup, damaged = run(bucket.find_damaged_objects(store, on_progress))
        else:
            backup = contents.read_backup(place)
            damaged = list(contents.find_damaged_files(backup, on_progress))
    if as_json:
        files = [{"path": str(file.path), "reason": file.reason} for file in damaged]
        show_json({**asdict(backup.info), "damaged": files})
    else:
        for file in damaged:
            echo(f"{file}")
        if not damaged:
            echo(f"{place}: all files are as they were written")
            show_info(backup.info)
    if damaged:
        app.say(f"usher: {counted(len(damaged), 'file')} of the backup cannot be used.")
    return 3 if damaged else 0


def restore(
    app: App, place: BackupPlace, settings_file: Path | None, *, replace: bool, as_json: bool
) -> None:
    data, start = app.settings.data.absolute(), time.monotonic()
    with progress(app) as on_progress:
        backup = local_backup(app, place, data, on_progress)
        if settings_file:
            restoring.check_settings(backup, settings_file)
        restoring.verify_all(backup, on_progress)
        run(create_databases(configured_dsns(app.settings).values()))
        with open_areas(app.settings) as areas:
            run(
                restoring.restore(
                    areas,
                    data,
                    backup,
                    replace=replace,
                    pg_bin=app.settings.pg_bin,
                    say=app.say,
                    on_progress=on_progress,
                )
            )
            behind = [state.schema for state in run(migrate.status(areas)) if state.pending]
    if settings_file:
        restoring.restore_settings(backup, settings_file)
    seconds = time.monotonic() - start
    if as_json:
        show_json({**asdict(backup.info), "restored_to": str(data), "seconds": round(seconds, 1)})
    else:
        echo(f"{place}: restored into {data} after {seconds:.1f} s")
        show_info(backup.info)
    show_next_steps(app, backup, settings_file, behind)
    if backup.source:
        bucket.remove_download(data)


def local_backup(app: App, place: BackupPlace, data: Path, on_progress: OnProgress) -> Backup:
    """Read the backup; download it if it is in object storage."""
    if not isinstance(place, StoreAddress):
        return contents.read_backup(place)
    store = open_store(str(place), app.settings)
    try:
        return run(bucket.download(store, data, on_progress))
    except (Unreachable, KeyboardInterrupt):
        app.say(f"The download is unfinished. To continue it: usher backup restore {place}")
        raise


def use_operator_login() -> None:
    """In a job, use the database of the settings: the job's own login may not read the control area."""
    if "USHER_JOB_ID" in os.environ:
        os.environ.pop("USHER_CONTROL_URL", None)


async def create_databases(dsns: Iterable[str]) -> None:
    """Create the configured databases that do not exist."""
    for dsn in dict.fromkeys(filter(None, dsns)):
        await databases.create_database(dsn)


def show_next_steps(
    app: App, backup: Backup, settings_file: Path | None, behind: list[str]
) -> None:
    own, file = backup.directory / contents.SETTINGS_FILE, settings_file or app.loaded.file
    shown = f"{backup.source}/{contents.SETTINGS_FILE}" if backup.source else own
    if contents.SETTINGS_FILE in backup.sums:
        if file is None:
            app.say(f"  → No settings file is in use. That of the backup is {shown}.")
        elif not filecmp.cmp(own, file, shallow=False):
            app.say(f"  → The settings of the backup differ from {file}: compare it with {shown}.")
    if behind:
        app.say(f"  → {', '.join(behind)}: run `usher db migrate`, then `usher db incarnate`")
    if app.settings.chunk_store:
        app.say(
            f"  → {app.settings.chunk_store} still belongs to the database that the backup was made of. If this one "
            "replaces it: `usher chunks adopt-store`. If both run, give this one another chunk_store first."
        )
    app.say("Start Usher again: usher up")
    app.say("Answers are partial until the index server has loaded its chunks.")


@contextmanager
def progress(app: App) -> Iterator[OnProgress]:
    """Show what is done: a bar on a terminal, elsewhere a line for each phase."""
    if app.quiet or not sys.stderr.isatty():
        phases = [""]

        def say_phase(phase: str, _done: int, _total: int) -> None:
            if phase != phases[-1]:
                phases.append(phase)
                app.say(f"{phase}.")

        yield say_phase
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as screen:

        def show_bar(phase: str, done: int, total: int) -> None:
            for task in screen.tasks:
                if (task.description, task.total) != (phase, total or None):
                    screen.remove_task(task.id)
            ids = screen.task_ids or [screen.add_task(phase, total=total or None)]
            screen.update(ids[0], completed=done)

        yield show_bar
