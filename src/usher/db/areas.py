"""The three areas of data and the database each lives in: one for all by default, up to three.

Comes from settings; goes to DSNs. No foreign key and no join crosses an area, so each may move away alone.
"""

from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from psycopg.conninfo import make_conninfo

from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server
from usher.errors import BadSetting
from usher.settings import Settings

SCHEMA_DIRECTORY = Path(__file__).parents[1] / "schema"
# The words of a database.conf, and libpq's.
CONF_PARAMETERS = {
    "hostname": "host",
    "port": "port",
    "database": "dbname",
    "username": "user",
    "password": "password",
}


class Area(StrEnum):
    WORK = "work"
    CONTROL = "control"
    SEARCH = "search"


# Which schemas (and directories of migrations) belong to which area, in the order they are made.
SCHEMAS: Mapping[str, Area] = {
    "work": Area.WORK,
    "control": Area.CONTROL,
    "feeds": Area.SEARCH,
    "multimatch": Area.SEARCH,
}

# Schemas that hold only views of another one's tables, and come and go with it.
VIEW_SCHEMAS: Mapping[str, tuple[str, ...]] = {"work": ("mgmt",)}


def with_view_schemas(*schemas: str) -> tuple[str, ...]:
    """The schemas, and those that come and go with them."""
    return tuple(name for schema in schemas for name in (schema, *VIEW_SCHEMAS.get(schema, ())))


@dataclass(frozen=True, slots=True)
class AreaDatabases:
    """Where each area is, and our lodging in the embedded server if any is there."""

    dsns: Mapping[Area, str]
    embedded_lease: EmbeddedServerLease | None = None

    def dsn(self, schema: str) -> str:
        return self.dsns[SCHEMAS[schema]]

    def is_embedded(self, schema: str) -> bool:
        """Whether this schema is in the embedded server, which is ours to change."""
        return self.is_ours(self.dsn(schema))

    def is_ours(self, dsn: str) -> bool:
        return self.embedded_lease is not None and dsn == self.embedded_lease.dsn

    def databases(self, schemas: tuple[str, ...] = tuple(SCHEMAS)) -> dict[str, list[str]]:
        """Each database once, with those of the schemas that are in it."""
        found: dict[str, list[str]] = {}
        for schema in schemas:
            found.setdefault(self.dsn(schema), []).append(schema)
        return found


def configured_dsns(settings: Settings) -> dict[Area, str]:
    """The DSN the operator gave each area; empty where the embedded server is meant."""
    return {
        Area.WORK: settings.work_url or settings.database_url or from_conf(Area.WORK),
        Area.CONTROL: settings.control_url or settings.database_url or from_conf(Area.CONTROL),
        Area.SEARCH: settings.search_url or settings.database_url or from_conf(Area.SEARCH),
    }


def from_conf(area: Area, directory: Path = SCHEMA_DIRECTORY) -> str:
    """The DSN in a database.conf of the area's schema directories, the first there is; as Ssscrape has it."""
    files = (directory / name / "database.conf" for name, of in SCHEMAS.items() if of is area)
    file = next((file for file in files if file.is_file()), None)
    return read_conf(file) if file else ""


def read_conf(file: Path) -> str:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string("[conf]\n" + file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, ConfigParserError) as error:
        raise BadSetting(f"{file} cannot be read: {error}.") from error
    given = {
        name: value.strip("\"' ") for section in parser.values() for name, value in section.items()
    }
    if odd := next((name for name in given if name not in CONF_PARAMETERS), ""):
        raise BadSetting(
            f"{odd} in {file} is nothing of a database.",
            hint=f"One of: {', '.join(CONF_PARAMETERS)}.",
        )
    return make_conninfo(**{CONF_PARAMETERS[name]: value for name, value in given.items() if value})


@contextmanager
def open_areas(settings: Settings) -> Iterator[AreaDatabases]:
    """Every area's DSN, good within the block; starts the embedded server if an area lives there."""
    dsns = configured_dsns(settings)
    if all(dsns.values()):
        yield AreaDatabases(dsns)
        return
    with lease_server(settings.data, pg_bin=settings.pg_bin, port=settings.pg_port) as lease:
        yield AreaDatabases({area: dsn or lease.dsn for area, dsn in dsns.items()}, lease)
