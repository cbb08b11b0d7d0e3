"""Where backups and archives are: a directory, or an address in object storage."""

from pathlib import Path
from typing import Any, Final

import click

from usher.cli.app import Command

PLACE: Final = "DIR|s3://BUCKET/PREFIX"


class PlaceType(click.ParamType[Any]):
    """A directory, or an address in object storage."""

    name = "place"

    def convert(  # its types are those of click
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401
        from usher.object_store.address import parse_address

        if not value:
            self.fail("the name of a directory is missing", param, ctx)
        return parse_address(value) if "://" in str(value) else Path(value)


def archive_option() -> Command:
    return click.option(
        "--keep-warc",
        metavar=PLACE,
        type=PlaceType(),
        help="Copy all WARC files to this archive before they are deleted here.",
    )
