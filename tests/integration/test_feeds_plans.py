"""The statements of every poll use their indexes, however many items there are."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from usher.db.pool import Connection
from usher.db.statements import Statement
from usher.feeds.store import save_feed, subscriptions

FILL = """
    insert into feeds.feed (url, first_date, mod_date) select 'u' || n, now(), now() from generate_series(1, 200) n;
    insert into feeds.feed_item (
        feed_id, key, link_key, hash, permalink, link, title, title_type, summary, summary_type, content, content_type,
        pub_date, mod_date, fetch_date, copyright, language, image, knocked
    )
    select f.id, md5(f.id || ' ' || n)::uuid, md5('l' || n)::uuid, md5('')::uuid, false, 'l', 't', '', '', '', '', '',
        now(), now(), now(), '', '', '', true
    from feeds.feed f, generate_series(1, 100) n;
    insert into feeds.feed_metadata (url, feed_id, added_at) select url, id, now() from feeds.feed;
    analyze feeds.feed, feeds.feed_item, feeds.feed_metadata;
"""
KEY = UUID(int=1)
HOT: dict[str, tuple[Statement, dict[str, Any]]] = {
    "known": (save_feed.store.stored_items, {"feed": 7, "keys": [KEY], "links": [KEY]}),
    "times": (save_feed.store.item_times, {"feeds": [7], "n": 50, "credible": timedelta(days=1)}),
    "to_knock": (save_feed.store.unknocked_links, {"feed": 7, "n": 50}),
    "knocked": (save_feed.store.mark_knocked, {"ids": [1], "links": ["l"]}),
    "find": (subscriptions.store.find_all, {"ids": [7]}),
}


@pytest.mark.parametrize("name", HOT)
async def test_by_index(conn: Connection, name: str) -> None:
    for statement in FILL.split(";\n"):
        if statement.strip():
            await conn.execute(statement.encode())
    hot, given = HOT[name]
    plan = await conn.execute(b"explain " + hot.query, given)
    lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "Index" in lines
    assert not re.findall(
        r"Seq Scan on (?!feed_poll|feed_metadata|feed_item_page|websub)\w+", lines
    ), lines
