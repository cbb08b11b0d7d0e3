"""Every asyncio task is passed to `log_failure`, or the code that creates it awaits it, so that no error is lost."""

import ast
import asyncio
import gc
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import usher
from usher.telemetry import Log, log_failure

PACKAGE = Path(usher.__file__).parent
# Number of tasks by file that the creating code awaits, directly or with gather.
AWAITED = Counter(
    {
        "backup/bucket_copies.py": 1,
        "cli/app.py": 2,
        "crawl/crawler.py": 2,
        "crawl/http/dns.py": 1,
        "door/doorkeeper.py": 1,
        "feeds/poll/shared_statements.py": 1,  # every error goes to a future that is awaited
        "feeds/poll/batch_poller.py": 2,
        "feeds/worker.py": 1,
        "index/builder.py": 2,
        "index/loader.py": 1,
        "http/server/rpc_connections.py": 2,  # they answer every error
        "http/server/listen.py": 1,
        "queue/runners/async_runner.py": 1,  # it reports every error as the end of the job
        "queue/manager.py": 3,
        "local/supervisor.py": 3,
        "local/crash_recorder.py": 1,  # awaited when the stack stops; it logs what it cannot store
        "api/claim_batcher.py": 1,  # every error goes to a future that is awaited
    }
)


def creates_task(node: ast.AST) -> bool:
    """Return whether this call creates a task outside a TaskGroup."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "ensure_future":
        return True
    group = isinstance(node.func.value, ast.Name) and node.func.value.id == "group"
    return node.func.attr == "create_task" and not group


def is_observed(call: ast.Call, tree: ast.AST) -> bool:
    """Return whether the task, or its name in the same function, is passed to `log_failure`."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(function))
        if call not in inside:
            continue
        names = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and node.value is call
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "log_failure":
                task = node.args[0]
                if task is call or (isinstance(task, ast.Name) and task.id in names):
                    return True
    return False


def test_tasks_are_observed_or_awaited() -> None:
    unobserved: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if creates_task(node) and not is_observed(node, tree):  # type: ignore[arg-type]
                unobserved[str(path.relative_to(PACKAGE))] += 1
    assert unobserved == AWAITED, (
        "wrap the task in usher.telemetry.log_failure, or await it and list it here"
    )


async def test_an_observed_task_that_fails_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))

    async def fail() -> None:
        raise ValueError("a defect")

    with caplog.at_level(logging.ERROR, logger="usher.test"):
        task = log_failure(asyncio.create_task(fail(), name="failing"), Log("test"))
        await asyncio.wait([task])
        await asyncio.sleep(0)
        del task
        gc.collect()
    [record] = caplog.records
    assert record.getMessage() == "task_failed"
    assert record.__dict__["fields"] == {"task": "failing", "error": "ValueError('a defect')"}
    assert not unseen
