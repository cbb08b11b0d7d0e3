"""`usher hosts group`, `ungroup` and `groups`, as an operator meets them."""

from support.processes.commands import Ran, usher


def at(database: str, *words: str) -> Ran:
    return usher(*words, environment={"DATABASE_URL": database})


def test_groups_of_hosts(database: str) -> None:
    at(database, "hosts", "add", "a.com", "b.com", "c.com")
    made = at(database, "hosts", "group", "shared", "https://a.com/x", "b.com", "--delay", "1m30s")
    assert (made.code, made.out, made.err) == (0, "", "shared: a.com, b.com\n")
    shown = at(database, "hosts", "groups").out.splitlines()
    assert shown[1].split() == ["shared", "1m30s", "now", "2", "a.com,", "b.com"]
    [one] = at(database, "hosts", "groups", "--json").json
    assert (one["name"], one["crawl_delay"], one["hosts"]) == ("shared", 90, 2)
    assert at(database, "hosts", "ungroup", "a.com").err == "ungrouped: a.com\n"
    assert at(database, "hosts", "group", "shared", "--delay", "0s").code == 0
    [one] = at(database, "hosts", "groups", "--json").json
    assert (one["crawl_delay"], one["some"]) == (0, ["b.com"])
    unknown = at(database, "hosts", "group", "other", "c.com", "d.com")
    assert (unknown.code, "→" in unknown.err) == (3, True)
    assert len(at(database, "hosts", "groups", "--json").json) == 1, "all of them, or none"
    for words, code in (
        (("group", "shared"), 2),
        (("group", "shared", "--delay", "soon"), 2),
        (("ungroup", "d.com"), 3),
    ):
        assert at(database, "hosts", *words).code == code, words
