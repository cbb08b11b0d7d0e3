"""The settings of the MGMT process that serves the console, without secrets."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from usher.api.context import MgmtCall
from usher.console.lists.list_query import condition
from usher.console.page import (
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.settings import LoadedSettings


def settings_view(loaded: LoadedSettings) -> Callable[[MgmtCall[Any]], Awaitable[ConsolePage]]:
    """The view of these settings."""

    async def settings_page(call: MgmtCall[Any]) -> ConsolePage:
        contains = condition(call, "contains")
        listed = [
            row
            for row in loaded.rows()
            if contains.lower() in f"{row.name} {row.value} {row.origin} {row.help}".lower()
        ]
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
        table = ConsoleTable(
            ("Setting", "Value", "Origin", "Meaning"),
            rows,
            (FilterField("contains", "Contains", contains),),
            path="/settings",
            empty="No setting matches.",
        )
        return list_page("Settings", table, [asdict(row) for row in listed], "usher settings")

    return settings_page
