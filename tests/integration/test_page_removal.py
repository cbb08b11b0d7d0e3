"""Removal of all pages that match: each gets its own removal, and what would cover more is skipped."""

from collections.abc import AsyncIterator

import pytest

from usher.db.clock import server_time
from usher.db.pool import Database
from usher.door import removals
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Reason
from usher.errors import BadInput
from usher.mgmt.page_list import PageConditions
from usher.mgmt.page_removal import BulkRemoval, count_removable, remove_pages
from usher.removal_rules import page_target, parse_target
from usher.urls import Url, parse


@pytest.fixture
async def door(database: str) -> AsyncIterator[Doorkeeper]:
    async with Database(database, role="usher_door") as db:
        yield Doorkeeper(db)


def target_text(text: str) -> str | None:
    url = parse(text)
    assert isinstance(url, Url)
    target = page_target(url)
    return target.text if target else None


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://a.example/page", "a.example/page"),
        ("http://a.example/dir/", "a.example/dir"),
        ("https://a.example/page?x=1", "a.example/page?x=1"),
        ("https://a.example/", None),
        ("https://a.example/page?x=/", None),
        ("https://a.example/a*", None),
    ],
)
def test_a_page_has_the_target_that_undoes_its_removal(url: str, text: str | None) -> None:
    assert target_text(url) == text
    if text:
        assert parse_target(text).text == text
        assert parse_target(text).kind == "page"


async def remove(door: Doorkeeper, limit: int, reason: str = "a notice") -> BulkRemoval:
    async with door.db.transaction() as conn:
        return await remove_pages(
            conn,
            PageConditions(state="pending"),
            limit=limit,
            reason=reason,
            author="alice",
            now=await server_time(conn),
        )


async def test_no_more_pages_than_confirmed_are_removed(door: Doorkeeper) -> None:
    urls = [f"https://a.example/{number}" for number in range(6)]
    await door.knock([*urls, "https://a.example/"])
    async with door.db.transaction() as conn:
        assert (await count_removable(conn, PageConditions())).number == 7
    with pytest.raises(BadInput):
        await remove(door, 3, reason=" ")
    result = await remove(door, 4)
    assert result == BulkRemoval(3, 1)
    assert result.text == "3 pages removed; 1 page cannot be removed without others"
    verdicts = await door.knock(urls)
    removed = [answer.given for answer in verdicts.answers if answer.reason is Reason.REMOVED]
    assert len(removed) == 3
    assert await remove(door, 4) == BulkRemoval(0, 1)  # the same pages, until they are swept
    async with door.db.transaction() as conn:
        listed = await removals.list_removals(conn)
        assert {(each.reason, each.removed_by) for each in listed} == {("a notice", "alice")}
        await conn.execute("update work.guestbook set removed = true where path < '/3'")
        assert (await count_removable(conn, PageConditions())).number == 3
    assert await remove(door, 10) == BulkRemoval(3, 0)
