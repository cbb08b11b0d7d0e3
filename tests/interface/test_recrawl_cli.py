"""`usher hosts recrawl` while pages of the host are in progress."""

import psycopg

from support.processes.commands import Ran, usher


def at(dsn: str, *words: str) -> Ran:
    return usher(*words, environment={"DATABASE_URL": dsn})


def test_recrawl_with_a_pass_while_pages_are_in_progress(database: str) -> None:
    """A root in progress keeps no other page out, and pages that are being crawled are named."""
    at(database, "add", "a.gov/", "a.gov/1", "a.gov/2", "a.gov/3")
    with psycopg.connect(database) as conn:
        conn.execute("update work.guestbook set state = 'crawled' where path in ('/1', '/2')")
        conn.execute("update work.guestbook set state = 'crawling' where path = '/3'")
    passed = at(database, "hosts", "recrawl", "a.gov", "--pass", "--json")
    assert passed.json["reasons"] == {"full_pass": 1}
    assert "a.gov: 1 page in progress, not admitted again" in passed.err
    with psycopg.connect(database) as conn:
        found = conn.execute("select path, state from work.guestbook order by path").fetchall()
    assert dict(found) == {"/": "pending", "/1": "pending", "/2": "pending", "/3": "crawling"}
