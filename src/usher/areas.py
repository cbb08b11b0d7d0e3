"""The three areas of data and the database each lives in: one for all by default, up to three.

Comes from settings; goes to DSNs. No foreign key and no join crosses an area, so each may move away alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from usher.embedded.guest import Lodging, lodge
from usher.settings import Settings


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


@dataclass(frozen=True, slots=True)
class Places:
    """Where each area is, and our lodging in the embedded server if any is there."""

    dsns: Mapping[Area, str]
    lodging: Lodging | None = None

    def dsn(self, schema: str) -> str:
        return self.dsns[SCHEMAS[schema]]

    def owned(self, schema: str) -> bool:
        """Whether this schema is in the embedded server, which is ours to change."""
        return self.is_ours(self.dsn(schema))

    def is_ours(self, dsn: str) -> bool:
        return self.lodging is not None and dsn == self.lodging.dsn

    def databases(self, schemas: tuple[str, ...] = tuple(SCHEMAS)) -> dict[str, list[str]]:
        """Each database once, with those of the schemas that are in it."""
        found: dict[str, list[str]] = {}
        for schema in schemas:
            found.setdefault(self.dsn(schema), []).append(schema)
        return found


def named(settings: Settings) -> dict[Area, str]:
    """The DSN the operator gave each area; empty where the embedded server is meant."""
    return {
        Area.WORK: settings.work_url or settings.database_url,
        Area.CONTROL: settings.control_url or settings.database_url,
        Area.SEARCH: settings.search_url or settings.database_url,
    }


@contextmanager
def places(settings: Settings) -> Iterator[Places]:
    """Every area's DSN, good within the block; starts the embedded server if an area lives there."""
    dsns = named(settings)
    if all(dsns.values()):
        yield Places(dsns)
        return
    with lodge(settings.data, pg_bin=settings.pg_bin, port=settings.pg_port) as lodging:
        yield Places({area: dsn or lodging.dsn for area, dsn in dsns.items()}, lodging)
