"""Chunk files in object storage, with a real S3 server and real processes: machines and the store may go away."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.index.stack import Stack, running_stack
from support.processes.commands import run
from support.processes.crawls import EMBEDDED, SETTINGS
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.s3.chunk_pages import fetches, site, store_settings, urls
from support.s3.fixtures import skip_without_program
from support.s3.requests import S3Account, S3Requests
from support.s3.server import KIND, OPERATOR, S3Server, running_s3

pytestmark = [EMBEDDED, pytest.mark.soak]
PAGES = 120
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "2")
UNDER_WAY = "select count(*) from work.guestbook where state in ('pending', 'crawling')"
FETCHED = """
select g.path from work.guestbook g join work.chunk k on k.id = g.chunk_id and k.state = 'crawled'
where g.state = 'crawled'
"""
# What an hour does: no attempt to upload lasts so long.
HOUR = "update work.chunk_object set requested_at = requested_at - interval '1 hour'"
EVENTS = "select kind, count(*) from work.event where kind in ('lost', 'crawl_expired', 'build_expired') group by 1"


class Machines:
    """Components that share no disk, and know neither the store nor its credentials; MGMT and the watchdog do."""

    def __init__(self, stack: Stack, directory: Path, **settings: object) -> None:
        self.stack, self.directory = stack, directory
        self.config = directory / "components.toml"
        text = (
            f"{name} = {json.dumps(value)}\n" for name, value in {**SETTINGS, **settings}.items()
        )
        self.config.write_text("".join(text))

    def data(self, name: str) -> Path:
        return self.directory / "machines" / name

    def start(self, name: str, role: str, *words: str) -> None:
        environment = self.stack.processes.environment
        own = {"USHER_DATA": str(self.data(name)), "USHER_CONFIG": str(self.config)}
        self.stack.processes.environment = {**environment, **own}
        self.stack.start(name, role, *words)
        self.stack.processes.environment = environment

    def destroy(self, name: str) -> None:
        """Kill a component with -9, and delete its disk."""
        self.stack.kill(name)
        shutil.rmtree(self.data(name))


@contextmanager
def machines(
    database: str, directory: Path, server: S3Server, **settings: object
) -> Iterator[Machines]:
    with running_stack(database, directory, **store_settings(server), **settings) as stack:
        stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stack.crawl.run("update work.settings set rows = 1")
        yield Machines(stack, directory, **settings)


def crawled(stack: Stack) -> list[str]:
    return [path for (path,) in stack.crawl.ask(FETCHED)]


def built(stack: Stack) -> int:
    return stack.chunks().get("built", 0)


def all_found(stack: Stack, expected: list[str]) -> None:
    done = eventually(lambda: stack.find(1, "velvet") == expected, 90)
    assert done, (len(stack.find(1, "velvet")), stack.chunks(), stack.crawl.log[-4000:])


def test_machines_that_vanish_after_their_reports_lose_nothing(
    database: str, tmp_path: Path, own_s3_server: S3Server
) -> None:
    own_s3_server.create_bucket("chunks")
    with site(PAGES) as web, machines(database, tmp_path, own_s3_server) as house:
        stack = house.stack
        stack.crawl.add(web.url("/"), words=["--full"])
        safe = dict[str, int]()
        for number in range(3):
            house.start(f"crawler-{number}", "crawler", "--pages", "4", "--chunks", "2")
            wanted = len(safe) + PAGES // 4
            assert eventually(lambda wanted=wanted: len(crawled(stack)) >= wanted, 60)  # type: ignore[misc]
            house.destroy(f"crawler-{number}")
            reported = crawled(stack)
            safe |= {path: fetches(web)[path] for path in reported if path not in safe}
            stack.crawl.forgive()
        house.start("crawler-last", "crawler", "--pages", "4")
        stack.crawl.wait()
        house.destroy("crawler-last")
        reported = crawled(stack)
        assert len(reported) == PAGES + 1
        time.sleep(5)  # the watchdog declares the crawlers dead, and returns what only they had
        for number in range(2):
            house.start(f"builder-{number}", "builder", "--processes", "1", "--chunks", "2")
            assert eventually(lambda number=number: built(stack) > 5 * number, 60)  # type: ignore[misc]
            house.destroy(f"builder-{number}")
        house.start("builder-last", "builder", "--processes", "1")
        assert eventually(lambda: set(stack.chunks()) <= {"built", "error"}, 60), stack.chunks()
        house.destroy("builder-last")
        time.sleep(5)
        house.start("server-1-1", "index-server", "--row", "1")
        all_found(stack, urls(web, PAGES))
        stack.propagated()
        again = {path: fetches(web)[path] for path in safe}
        assert again == safe, "a reported page was fetched again"
        assert not dict(stack.crawl.ask(EVENTS)).get("lost")
        only_needed_objects_remain(stack, own_s3_server)


def only_needed_objects_remain(stack: Stack, server: S3Server) -> None:
    """The watchdog deletes contents that every row has, and uploads that were never reported."""
    stack.crawl.run(HOUR)
    indexes = stack.crawl.ask("select index_sha256 from work.chunk where index_state = 'built'")
    expected = sorted(sha256 for (sha256,) in indexes)

    def stored() -> list[str]:
        folders = ("usher/content/", "usher/index/")
        keys = [key for folder in folders for key in server.requests.keys("chunks", folder)]
        return sorted(key.rpartition("-")[2].removesuffix(".idx") for key in keys)

    assert eventually(lambda: stored() == expected, 60), (stored(), expected)


def test_work_pauses_while_the_store_is_away(
    database: str, tmp_path: Path, own_s3_server: S3Server
) -> None:
    own_s3_server.create_bucket("chunks")
    lease = 10
    with (
        site(PAGES) as web,
        machines(database, tmp_path, own_s3_server, chunk_lease=lease) as house,
    ):
        stack = house.stack
        house.start("crawler", "crawler", "--pages", "4", "--chunks", "3")
        house.start("builder", "builder", "--processes", "1")
        house.start("server-1-1", "index-server", "--row", "1")
        stack.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: len(crawled(stack)) > PAGES // 4, 60)
        own_s3_server.kill()
        away_since = time.monotonic()
        reasons = "select type, state_reason from work.component where state = 'waiting'"
        waits = eventually(lambda: "crawler" in dict(stack.crawl.ask(reasons)), 30)
        assert waits, stack.crawl.log[-4000:]
        assert "Object store" in dict(stack.crawl.ask(reasons))["crawler"]
        assert "object store" in status(stack).lower(), status(stack)  # before the watchdog knows
        problem = eventually(lambda: "object store cannot be used" in status(stack), 30)
        assert problem, status(stack)
        time.sleep(max(0.0, 60 - (time.monotonic() - away_since)))
        assert dict(stack.crawl.ask(EVENTS)) == {}, "a lease ended"
        own_s3_server.start()
        stack.crawl.wait()
        all_found(stack, urls(web, PAGES))
        stack.propagated()
        assert set(fetches(web).values()) == {1}
        assert dict(stack.crawl.ask(EVENTS)) == {}
        assert eventually(lambda: dict(stack.crawl.ask(reasons)) == {}, 30)
        assert eventually(lambda: "object store" not in status(stack), 60), status(stack)


def status(stack: Stack) -> str:
    return run(["status"], stack.processes.environment).out


def test_damaged_and_lost_objects_are_made_again(
    database: str, tmp_path: Path, own_s3_server: S3Server
) -> None:
    pages = 20
    own_s3_server.create_bucket("chunks")
    requests = own_s3_server.requests
    with site(pages) as web, machines(database, tmp_path, own_s3_server) as house:
        stack = house.stack
        house.start("crawler", "crawler", "--pages", "4")
        stack.crawl.add(web.url("/"), words=["--full"])
        stack.crawl.wait()
        damaged, lost, *_ = requests.keys("chunks", "usher/content/")
        damage(requests, damaged)
        requests.delete("chunks", lost)
        house.start("builder", "builder", "--processes", "1")
        assert eventually(lambda: set(stack.chunks()) == {"built", "error"}, 60), stack.chunks()
        stack.crawl.wait()
        damaged, lost, *_ = requests.keys("chunks", "usher/index/")
        damage(requests, damaged)
        requests.delete("chunks", lost)
        house.start("server-1-1", "index-server", "--row", "1")
        all_found(stack, urls(web, pages))
        kinds = dict(
            stack.crawl.ask(
                "select kind, count(*) from work.event where chunk_id is not null group by 1"
            )
        )
        assert kinds["content_missing"] == 2
        assert kinds["index_missing"] >= 2
        reasons = {reason for (reason,) in stack.crawl.ask("select reason from work.event")}
        assert any("checksum" in reason for reason in reasons), reasons


def damage(requests: S3Requests, key: str) -> None:
    body = bytearray(requests.get("chunks", key))
    body[len(body) // 2] ^= 0xFF
    requests.put("chunks", key, bytes(body))


def test_chunks_at_hosts_and_in_the_store_work_together(
    database: str, tmp_path: Path, own_s3_server: S3Server
) -> None:
    """MGMT gets the store while some chunks are at their crawler and at their builder."""
    own_s3_server.create_bucket("chunks")
    first, second, third = site(20), site(30), site(40)
    with first, second, third, running_stack(database, tmp_path) as stack:
        house = Machines(stack, tmp_path)
        stack.crawl.run("update work.settings set rows = 1")
        house.start("crawler", "crawler", "--pages", "4")
        stack.crawl.add(first.url("/"), words=["--full"])
        stack.crawl.wait()
        house.start("builder", "builder", "--processes", "1")
        assert eventually(lambda: built(stack) > 1, 60)
        assert eventually(lambda: set(stack.chunks()) == {"built"}, 60)
        stack.processes.stop(["builder"])
        stack.crawl.add(second.url("/"), words=["--full"])
        stack.crawl.wait()
        assert stack.crawl.ask("select * from work.chunk_object") == []
        config = tmp_path / "usher.toml"
        added = (
            f"{name} = {json.dumps(value)}\n"
            for name, value in store_settings(own_s3_server).items()
        )
        config.write_text(config.read_text() + "".join(added))
        stack.processes.kill("mgmt")
        stack.crawl.add(third.url("/"), words=["--full"])
        stack.crawl.wait()
        house.start("builder", "builder", "--processes", "1")
        house.start("server-1-1", "index-server", "--row", "1")
        all_found(stack, sorted([*urls(first, 20), *urls(second, 30), *urls(third, 40)]))
        stack.propagated()
        kinds = dict(stack.crawl.ask("select kind, count(*) from work.chunk_object group by 1"))
        assert kinds["content"] > 0
        assert kinds["index"] > kinds["content"]
        for web in (first, second, third):
            assert set(fetches(web).values()) == {1}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"s3_secret_key": "wrong"}, "does not accept the credentials"),
        ({"chunk_store": "s3://no-such-bucket"}, "There is no bucket no-such-bucket"),
        ({"s3_access_key": "", "s3_secret_key": ""}, "There are no credentials"),
    ],
)
def test_a_store_that_cannot_be_used_is_a_clear_error_at_the_start(
    database: str,
    tmp_path: Path,
    s3_server: S3Server,
    bucket: str,
    changed: dict[str, object],
    words: str,
) -> None:
    settings = {**store_settings(s3_server, bucket), **changed}
    environment = {f"USHER_{name.upper()}": str(value) for name, value in settings.items()}
    with running_stack(database, tmp_path) as stack:
        everything = {
            **stack.processes.environment,
            **environment,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for command in (["mgmt", "--bind", "127.0.0.1:0"], ["doctor"], ["up"]):
            done = run(command, everything)
            assert done.code != 0
            assert words in done.out + done.err
            assert "Traceback" not in done.err


@pytest.mark.skipif(KIND != "seaweedfs", reason="the test's MinIO has one account")
def test_an_account_without_permission_is_a_clear_error(database: str, tmp_path: Path) -> None:
    """A bucket of another account: the credentials are right, and do not suffice."""
    reader = S3Account("reader", "secret-of-the-reader")
    skip_without_program()
    with running_s3(tmp_path / "denied", {"other-bucket": reader}) as server:
        server.create_bucket("chunks")
        settings = store_settings(server)
        settings |= {"s3_access_key": reader.access_key, "s3_secret_key": reader.secret_key}
        environment = {f"USHER_{name.upper()}": str(value) for name, value in settings.items()}
        with running_stack(database, tmp_path) as stack:
            done = run(
                ["mgmt", "--bind", "127.0.0.1:0"], {**stack.processes.environment, **environment}
            )
        assert done.code != 0
        assert "denies access to s3://chunks/usher" in done.err


@pytest.mark.skipif(KIND != "seaweedfs", reason="the test's MinIO has one account")
def test_work_waits_for_new_credentials(database: str, tmp_path: Path) -> None:
    """The store refuses URLs that were signed with the old ones; a builder asks MGMT for others."""
    skip_without_program()
    pages, old = 12, S3Account("old-account", "secret-of-the-old-account")
    reasons = (
        "select state_reason from work.component where type = 'index-builder' and state = 'waiting'"
    )
    with running_s3(tmp_path / "s3", {"chunks": old}) as server, site(pages) as web:
        server.create_bucket("chunks")
        given = {"s3_access_key": old.access_key, "s3_secret_key": old.secret_key}
        with running_stack(database, tmp_path, **{**store_settings(server), **given}) as stack:
            house = Machines(stack, tmp_path)
            stack.crawl.run("update work.settings set rows = 1")
            house.start("crawler", "crawler", "--pages", "4")
            stack.crawl.add(web.url("/"), words=["--full"])
            stack.crawl.wait()
            accounts = server.directory / "accounts.json"
            identities = json.loads(accounts.read_text())["identities"]
            accounts.write_text(json.dumps({"identities": identities[:1]}))
            server.restart()
            house.start("builder", "builder", "--processes", "1")
            waits = eventually(lambda: bool(stack.crawl.ask(reasons)), 30)
            assert waits, stack.crawl.log[-4000:]
            assert "403" in stack.crawl.ask(reasons)[0][0]
            config = tmp_path / "usher.toml"
            text = config.read_text()
            for before, after in zip(quoted(old), quoted(OPERATOR), strict=True):
                text = text.replace(before, after)
            config.write_text(text)
            stack.processes.kill("mgmt")
            house.start("server-1-1", "index-server", "--row", "1")
            all_found(stack, urls(web, pages))
            assert set(fetches(web).values()) == {1}
            assert not stack.crawl.ask("select from work.chunk where build_attempts > 1")


def quoted(account: S3Account) -> tuple[str, str]:
    return json.dumps(account.access_key), json.dumps(account.secret_key)
