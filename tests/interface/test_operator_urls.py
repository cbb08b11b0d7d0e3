"""What the arguments of `usher add` and `usher hosts set` do to schemes and private hosts."""

from pathlib import Path

import psycopg
import pytest

from support.processes.commands import Ran, usher
from support.site.nginx import NGINX, served

HOST = "127.0.5.1:8090"
PAGES = "select path, scheme from work.guestbook order by path"
HTTPS, HTTP = 1, 2


def at(database: str, *words: str, job: bool = False) -> Ran:
    environment = {"DATABASE_URL": database, **({"USHER_JOB_ID": "1"} if job else {})}
    return usher(*words, environment=environment)


def rows(database: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as conn:
        return conn.execute(query.encode()).fetchall()


def test_a_typed_scheme_wins(database: str) -> None:
    assert at(database, "add", f"{HOST}/a", f"{HOST}/b").code == 0
    with psycopg.connect(database) as conn:  # as a crawler reports a refused connection
        conn.execute("update work.guestbook set state = 'error', reason = 'refused'")
    assert at(database, "add", "--pass", f"http://{HOST}/a", f"{HOST}/c").code == 0
    assert rows(database, PAGES) == [("/a", HTTP), ("/b", HTTP), ("/c", HTTPS)]
    assert at(database, "add", f"{HOST}/d").out.endswith(f"http://{HOST}/d\n")
    with psycopg.connect(database) as conn:  # the host answers with http
        conn.execute("update work.guestbook set last_fetched = now() where path = '/b'")
    assert at(database, "add", "--pass", f"https://{HOST}/a").code == 0
    assert rows(database, PAGES)[:2] == [("/a", HTTPS), ("/b", HTTP)]
    assert rows(database, "select scheme from work.hosts") == [(HTTP,)]


def test_a_host_without_https_is_added_with_http(database: str, tmp_path: Path) -> None:
    if NGINX is None:
        pytest.skip("nginx is not installed: scripts/packages")
    (tmp_path / "root").mkdir()
    with served(tmp_path / "root", tmp_path) as web:
        bare = f"127.0.0.1:{web.port}"
        added = at(database, "add", bare)
    assert added.out == f"admit   new_page            http://{bare}/\n"
    assert f"{bare} has no https (the host does not speak TLS)." in added.err


def test_another_scheme_is_tried_at_once(database: str) -> None:
    https, http = f"https://{HOST}/a", f"http://{HOST}/a"
    reason = "Could not read robots.txt (the connection was lost during the TLS handshake)"
    fails = (
        f"update work.guestbook set state = 'error', failures = 1, reason = '{reason}', "
        "next_fetch = now() + interval '1 hour'"
    )
    assert at(database, "add", https).code == 0
    with psycopg.connect(database) as conn:
        conn.execute(fails.encode())
    explained = at(database, "explain", https).out
    assert f"If the site has no https, use http.\n  → usher add {http}\n" in explained
    assert at(database, "add", https).out.startswith("refuse  page_not_due ")
    assert at(database, "add", http).out == f"admit   page_due            {http}\n"
    assert "It waits" in at(database, "explain", http).out
    with psycopg.connect(database) as conn:
        conn.execute(fails.encode())
    assert at(database, "add", "--pass", http).out == f"admit   single_pass         {http}\n"


def test_a_url_without_a_scheme_has_the_scheme_that_the_guestbook_has(database: str) -> None:
    assert at(database, "add", f"http://{HOST}/a", f"http://{HOST}/b").code == 0
    with psycopg.connect(database) as conn:
        conn.execute("update work.guestbook set scheme = 1 where path = '/b'")
    for path, scheme in (("/a", "http"), ("/b", "https"), ("/c", "http")):
        url, bare = f"{scheme}://{HOST}{path}", f"{HOST}{path}"
        assert at(database, "explain", bare).out.splitlines()[0] == url
        explained = at(database, "explain", "--json", bare).json
        assert (explained["url"], explained["canonical"]) == (bare, url)
        assert url in at(database, "add", "--dry-run", bare).out
        assert at(database, "explain", f"https://{bare}").out.startswith(f"https://{bare}\n")
    assert at(database, "pages", "show", f"{HOST}/a").out.startswith(
        f"page        http://{HOST}/a\n"
    )
    assert f"→ usher add http://{HOST}/c" in at(database, "pages", "show", f"{HOST}/c").err


def test_only_typed_arguments_permit_private_hosts(database: str, tmp_path: Path) -> None:
    permitted = "select host, port, host(addresses[1]) from work.private_access order by port"
    file = tmp_path / "urls"
    file.write_text("http://127.0.5.1:8091/\n")
    at(database, "add", "--file", str(file))
    at(database, "add", "--dry-run", "http://127.0.5.1:8092/")
    at(database, "add", "http://127.0.5.1:8093/", job=True)
    many = [f"http://127.0.5.1:{8100 + number}/" for number in range(51)]
    at(database, "add", *many)
    assert rows(database, permitted) == []
    assert at(database, "add", f"http://{HOST}/").code == 0
    assert rows(database, permitted) == [(HOST, 8090, "127.0.5.1")]


def test_hosts_set_registers_a_private_host(database: str) -> None:
    assert at(database, "hosts", "set", f"http://{HOST}/", "--allow-private").code == 0
    assert rows(database, "select name, scheme from work.hosts") == [(HOST, HTTP)]
    unknown = at(database, "hosts", "set", "http://127.0.5.1:8099/", "--no-allow-private")
    assert (unknown.code, "No host is registered" in unknown.err) == (3, True)
