"""Which versions may run together, and what people are told if they may not."""

from itertools import pairwise

import pytest

from usher import __version__
from usher.versions import (
    ComponentGroupVersion,
    MinorVersion,
    RunningVersions,
    are_compatible,
    minor_version,
    version_counts,
    version_problem,
    version_problems,
)

ORDER = ["0.1.0", "0.1.7", "0.2.0rc1", "0.2.3", "0.3.0", "0.10.0"]


def group(version: str, number: int = 1, type_: str = "crawler") -> ComponentGroupVersion:
    return ComponentGroupVersion(version, type_, number, "10.0.0.7:5000")


def problems(processes: list[str], *components: ComponentGroupVersion) -> list[str]:
    return list(version_problems(RunningVersions(processes, components)))


def test_this_version_is_known() -> None:
    assert minor_version(__version__)


def test_minor_versions_have_the_order_of_their_numbers() -> None:
    versions = [minor_version(text) for text in ORDER]
    assert all(
        one is not None and two is not None and one <= two for one, two in pairwise(versions)
    )
    assert [minor_version(text) for text in ("", "dev", "1", "x1.2", "1.x")] == [None] * 5
    assert minor_version("0.2") == minor_version("0.2.0rc1") == MinorVersion(0, 2)


@pytest.mark.parametrize(
    ("one", "other", "compatible"),
    [
        ((0, 1), (0, 1), True),
        ((0, 1), (0, 2), True),
        ((0, 1), (0, 3), False),
        ((0, 9), (1, 0), True),
        ((0, 9), (1, 1), False),
        ((0, 9), (2, 0), False),
        ((1, 9), (1, 10), True),
    ],
)
def test_compatible_versions(
    one: tuple[int, int], other: tuple[int, int], *, compatible: bool
) -> None:
    assert are_compatible(MinorVersion(*one), MinorVersion(*other)) is compatible
    assert are_compatible(MinorVersion(*other), MinorVersion(*one)) is compatible


def test_a_component_may_be_one_minor_version_older_than_mgmt() -> None:
    for component in ("0.2.0", "0.2.9", "0.1.5", "", "of another make"):
        assert version_problem("0.2.1", component) == ""
    assert "upgrade MGMT first" in version_problem("0.2.1", "0.3.0")
    assert "more than one minor version" in version_problem("0.3.0", "0.1.9")
    assert version_problem("", "0.3.0") == ""  # an MGMT that does not state its version


def test_an_upgrade_in_the_documented_order_is_no_problem() -> None:
    assert problems([]) == []
    assert problems(["0.1.0"], group("0.1.0")) == []
    assert problems(["0.1.0", "0.2.0"], group("0.1.0")) == []
    assert problems(["0.2.0"], group("0.1.0"), group("0.2.0"), group("")) == []
    assert problems([], group("0.1.0"), group("0.2.0")) == []


def test_a_component_that_is_newer_than_a_process_at_the_database() -> None:
    [text] = problems(["0.2.0", "0.1.0"], group("0.2.0", 3), group("0.1.0"))
    assert text == (
        "A process that uses the database has 0.1.0, older than components: "
        "crawler 10.0.0.7:5000 and 2 more (0.2.0)."
    )


def test_versions_that_are_too_far_apart() -> None:
    [text] = problems(["0.3.0"], group("0.3.0"), group("0.1.0", type_="front-end"))
    assert text == (
        "Components are more than one minor version older than 0.3: front-end 10.0.0.7:5000 (0.1.0)."
    )
    [text] = problems(["0.1.0", "0.3.0"])
    assert "0.1.0 and 0.3.0, more than one minor version apart" in text
    assert len(problems([], group("0.3.0"), group("0.1.0"))) == 1


def test_counts_by_version() -> None:
    running = RunningVersions(["0.2.0"], [group("0.1.0", 2), group("0.2.0"), group("")])
    assert version_counts(running) == (
        "0.2.0 (1 component, processes that use the database), 0.1.0 (2 components), unknown (1 component)"
    )
    assert not running.is_uniform
    assert RunningVersions(["0.2.0"], [group("0.2.0")]).is_uniform
