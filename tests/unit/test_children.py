"""Which programs a job may start as further jobs."""

from typing import Any

import pytest

from usher.queue.child_programs import Origin, known_refusal, permission
from usher.queue.policy import read_policies

RULES = read_policies(
    {
        "listed": {
            "child_programs": ["titles:*", "/srv/workers/*.sh", "count", "deep:os.path.join"]
        },
        "none": {"child_programs": []},
        "any": {"child_programs": ["*"]},
        "apart": {"user": "nobody"},
        "inside": {"run": "async"},
    }
)


@pytest.mark.parametrize(
    ("origin", "program", "allowed"),
    [
        (None, "/bin/sh", True),
        (Origin("plain", "/srv/a.sh"), "/srv/a.sh", True),
        (Origin("plain", "/srv/a.sh"), "/srv/b.sh", False),
        (Origin("plain", "/srv/a.sh"), "/bin/sh", False),
        (Origin("plain", "m:f"), "m:g", True),
        (Origin("plain", "m:f"), "m.n:g", False),
        (Origin("plain", "m:f"), "/m:g", False),
        (Origin("listed", "titles:fetch"), "titles:shout", True),
        (Origin("listed", "x"), "x", False),
        (Origin("listed", "x"), "count", True),
        (Origin("listed", "x"), "/srv/workers/a.sh", True),
        (Origin("listed", "x"), "/srv/workers/below/a.sh", False),
        (Origin("listed", "x"), "/srv/workers/../a.sh", False),
        (Origin("listed", "x"), "/srv/workers//a.sh", False),
        (Origin("none", "m:f"), "m:f", False),
        (Origin("any", "m:f"), "/bin/sh", True),
        (Origin("apart", "m:f"), "m:f", False),  # the child's type has another user
    ],
)
def test_a_program_is_allowed_by_the_type_of_the_parent(
    origin: Origin | None, program: str, *, allowed: bool
) -> None:
    assert (permission(RULES, origin, "plain", program).refusal == "") == allowed


@pytest.mark.parametrize(
    ("origin", "program", "defined_only"),
    [
        (Origin("plain", "m:f"), "m:f", False),
        (Origin("plain", "m:f"), "m:os.system", True),
        (Origin("listed", "x"), "titles:run", True),
        (Origin("listed", "x"), "deep:os.path.join", False),  # listed word by word
    ],
)
def test_a_whole_module_means_the_functions_it_defines(
    origin: Origin, program: str, *, defined_only: bool
) -> None:
    found = permission(RULES, origin, "plain", program)
    assert (found.refusal, found.defined_only) == ("", defined_only)


@pytest.mark.parametrize(
    ("origin", "program", "allowed"),
    [
        (None, "m:f", True),
        (Origin("inside", "m:f"), "m:g", True),
        (Origin("inside", "m:f"), "os:system", False),
        (Origin("plain", "m:f"), "m:f", False),
        (Origin("any", "m:f"), "m:f", False),  # by a wildcard only
        (Origin("listed", "x"), "titles:run", False),
        (Origin("listed", "x"), "deep:os.path.join", True),
    ],
)
def test_the_manager_runs_no_code_inside_itself_that_its_operator_did_not_name(
    origin: Origin | None, program: str, *, allowed: bool
) -> None:
    assert (permission(RULES, origin, "inside", program).refusal == "") == allowed


@pytest.mark.parametrize(
    ("tables", "known"),
    [({}, False), ({"t": {}}, True), ({"defaults": {"child_programs": []}}, True)],
)
def test_mgmt_declines_only_what_its_settings_speak_of(
    tables: dict[str, dict[str, Any]], *, known: bool
) -> None:
    refusal = known_refusal(read_policies(tables), Origin("t", "m:f"), "t", "/bin/sh")
    assert bool(refusal) == known
