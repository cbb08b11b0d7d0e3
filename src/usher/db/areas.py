"""The three areas of data and the database of each: one for all by default, up to three.

No foreign key and no join crosses an area, so each area can have its own database.
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
# The names in a database.conf, and the parameters of libpq.
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


# The area of each schema, in the order in which the schemas are created.
SCHEMAS: Mapping[str, Area] = {
    "work": Area.WORK,
    "control": Area.CONTROL,
    "feeds": Area.SEARCH,
    "multimatch": Area.SEARCH,
}

# Schemas that hold only views of another schema's tables; they are created and dropped with it.
VIEW_SCHEMAS: Mapping[str, tuple[str, ...]] = {"work": ("mgmt",)}


def with_view_schemas(*schemas: str) -> tuple[str, ...]:
    """Return the schemas and their view schemas."""
    return tuple(name for schema in schemas for name in (schema, *VIEW_SCHEMAS.get(schema, ())))


@dataclass(frozen=True, slots=True)
class AreaDatabases:
    """The DSN of each area, and the lease of the embedded server if an area is in it."""

    dsns: Mapping[Area, str]
    embedded_lease: EmbeddedServerLease | None = None

    def dsn(self, schema: str) -> str:
        return self.dsns[SCHEMAS[schema]]

    def is_embedded(self, schema: str) -> bool:
        """Whether this schema is in the embedded server, which Usher migrates by itself."""
        return self.is_embedded_dsn(self.dsn(schema))

    def is_embedded_dsn(self, dsn: str) -> bool:
        return self.embedded_lease is not None and dsn == self.embedded_lease.dsn

    def databases(self, schemas: tuple[str, ...] = tuple(SCHEMAS)) -> dict[str, list[str]]:
        """Return each database once, with those of the schemas that are in it."""
        by_dsn: dict[str, list[str]] = {}
        for schema in schemas:
            by_dsn.setdefault(self.dsn(schema), []).append(schema)
        return by_dsn


def configured_dsns(settings: Settings) -> dict[Area, str]:
    """Return the configured DSN of each area; empty for the embedded server."""
    return {
        Area.WORK: settings.work_url or settings.database_url or from_conf(Area.WORK),
        Area.CONTROL: settings.control_url or settings.database_url or from_conf(Area.CONTROL),
        Area.SEARCH: settings.search_url or settings.database_url or from_conf(Area.SEARCH),
    }


def from_conf(area: Area, directory: Path = SCHEMA_DIRECTORY) -> str:
    """Return the DSN in the first database.conf of the area's schema directories, as in Ssscrape."""
    files = (directory / name / "database.conf" for name, of in SCHEMAS.items() if of is area)
    file = next((file for file in files if file.is_file()), None)
    return read_conf(file) if file else ""


def read_conf(file: Path) -> str:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string("[conf]\n" + file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, ConfigParserError) as error:
        raise BadSetting(f"{file} cannot be read: {error}.") from error
    values = {
        name: value.strip("\"' ") for section in parser.values() for name, value in section.items()
    }
    if unknown := next((name for name in values if name not in CONF_PARAMETERS), ""):
        raise BadSetting(
            f"{unknown} in {file} is not a setting of a database.",
            hint=f"One of: {', '.join(CONF_PARAMETERS)}.",
        )
    return make_conninfo(
        **{CONF_PARAMETERS[name]: value for name, value in values.items() if value}
    )


@contextmanager
def open_areas(settings: Settings) -> Iterator[AreaDatabases]:
    """Yield the DSN of each area; starts the embedded server if an area is in it."""
    dsns = configured_dsns(settings)
    if all(dsns.values()):
        yield AreaDatabases(dsns)
        return
    with lease_server(settings.data, pg_bin=settings.pg_bin, port=settings.pg_port) as lease:
        yield AreaDatabases({area: dsn or lease.dsn for area, dsn in dsns.items()}, lease)
