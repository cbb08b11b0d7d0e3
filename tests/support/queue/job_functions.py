"""Functions that jobs of the tests call."""

import os
from pathlib import Path

from usher.worker import PermanentError, TemporaryError, job


def story(path: str) -> None:
    me = job()
    me.message("fetching foo")
    words = (me.id, me.task_id, me.data, me.attempt, os.environ["EXTRA"])
    Path(path).write_text(" ".join(map(str, words)))
    me.wrote("feeds.feed_item", 1, 2)
    me.enqueue("t", "/bin/true", priority=1, key="once")
    me.enqueue("t", "/bin/true", key="once")
    print("said")  # noqa: T201


def later() -> None:
    raise TemporaryError("not now")


def never() -> None:
    raise PermanentError("not ever")


def broken() -> float:
    return 1 / int("0")
