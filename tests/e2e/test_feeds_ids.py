"""A feed has one number in commands, jobs and rows, and the message of a job occurs once."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from support.processes.killable import eventually
from support.processes.stack import USHER, ProcessStack, ask, open_stack
from support.site.website import Response, Website

CONFIG = """
allow_private = "127.0.0.0/8"
[worker.fetch]
max_processes = 1
preload = ["usher.feeds.worker"]
"""
RSS = b"""<rss version='2.0'><channel><title>News</title><item><guid>https://news.example/1</guid><title>One</title>
<enclosure url='https://news.example/1.mp3' type='audio/mpeg' length='1'/></item></channel></rss>"""
Stage = tuple[ProcessStack, str]


@pytest.fixture(scope="module")
def theatre() -> Iterator[Stage]:
    """Three feeds, of which the first two fail, polled by a manager: so the third is the first to be stored."""
    with Website() as site, open_stack(CONFIG) as (stack, lease, _):
        urls = [
            site.add("/down", Response(status=503)),
            site.add("/page", Response(b"<html>no feed</html>")),
            site.add("/feed", Response(RSS, content_type="application/rss+xml")),
        ]
        for url in urls:
            usher(stack, "feeds", "add", "--no-check", "--no-knock", url)
        ask(lease.dsn, "update control.resource set interval = '0', capacity = 9 returning 1")
        stack.start("manager", *USHER, "manager")
        stack.start("scheduler", *USHER, "scheduler")
        polled = "select count(*) from control.job_log where type = 'fetch'"
        assert eventually(lambda: ask(lease.dsn, polled)[0][0] == len(urls), 90)
        yield stack, lease.dsn


def usher(stack: ProcessStack, *words: str) -> str:
    command = [*USHER, *words]
    ran = subprocess.run(
        command, env=stack.environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def data(stack: ProcessStack, *words: str) -> Any:  # noqa: ANN401 - whatever the command prints
    return json.loads(usher(stack, *words, "--json"))


def test_commands_jobs_and_rows_have_the_same_number(theatre: Stage) -> None:
    stack, dsn = theatre
    [feed] = [one for one in data(stack, "feeds", "list") if one["url"].endswith("/feed")]
    number = feed["id"]
    assert "feed_id" not in feed
    [item] = data(stack, "items", "list", "--feed", str(number))
    assert item["feed"] == number
    [task] = [one for one in data(stack, "tasks", "list") if one["id"] == feed["task_id"]]
    assert task["name"] == f"feed-{number}"
    jobs = data(stack, "jobs", "log", "--task", f"feed-{number}")
    assert {tuple(one["args"]) for one in jobs} == {(str(number),)}
    assert ask(dsn, "select id, feed_id from feeds.feed_metadata where feed_id is not null") == [
        (number, number)
    ]
    assert ask(dsn, "select feed_id from feeds.feed_item") == [(number,)]
    [told] = data(stack, "feeds", "poll", str(number))
    assert told["feed"] == number
    assert "stored_in" not in told


def test_the_message_of_a_failed_poll_occurs_once(theatre: Stage) -> None:
    stack, _ = theatre
    messages = [one["message"] for one in data(stack, "jobs", "log", "--state", "permanent-error")]
    for words in ("HTTP 503 Service Unavailable.", "It is an HTML page, not a feed."):
        [said] = [one for one in messages if words in one]
        assert said.count(words) == 1, said
        assert said.count("Next ") == 1, said


def test_a_task_names_rows_without_a_name(theatre: Stage) -> None:
    stack, dsn = theatre
    number = usher(
        stack,
        "tasks",
        "add",
        "--name",
        "multimatch",
        "--every",
        "1h",
        "usher.feeds.worker:name_all",
    )
    ended = "select state, message from control.job_log where program like '%name_all' order by id"
    assert eventually(lambda: len(ask(dsn, ended)) > 0, 60)
    assert ask(dsn, ended)[0] == ("completed", "Named 1 feeds, 1 items and 1 enclosures.")
    [(urn, feed)] = ask(dsn, "select urn, id from multimatch.feed")
    assert str(urn).startswith("urn:multimatch:cached:text_xml:")
    assert [(feed,)] == ask(dsn, "select id from feeds.feed_metadata where feed_id is not null")
    usher(stack, "tasks", "run", number.strip())
    assert eventually(lambda: len(ask(dsn, ended)) > 1, 60)
    assert ask(dsn, ended)[1] == ("completed", "Named 0 feeds, 0 items and 0 enclosures.")
