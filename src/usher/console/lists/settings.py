"""The settings of the MGMT process that serves the console, without secrets."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from usher.api.context import MgmtCall
from usher.console.page import ConsolePage, ConsoleTable, TableCell, TableRow, list_page
from usher.settings import LoadedSettings


def settings_view(loaded: LoadedSettings) -> Callable[[MgmtCall[Any]], Awaitable[ConsolePage]]:
    """The view of these settings."""

    async def settings_page(_call: MgmtCall[Any]) -> ConsolePage:
        listed = list(loaded.rows())
        rows = [
            TableRow(
                (
                    TableCell(row.name, kind="code"),
                    TableCell(row.value or "-", kind="code"),
                    TableCell(row.origin),
                    TableCell(row.help),
                )
            )
            for row in listed
        ]
        table = ConsoleTable(("Setting", "Value", "Origin", "Meaning"), rows)
        return list_page("Settings", table, [asdict(row) for row in listed], "usher settings")

    return settings_page
