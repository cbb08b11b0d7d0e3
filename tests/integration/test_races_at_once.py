"""Knocks, claims, reports, closes, builds, placements and losses at once; every invariant between tables holds."""

import os

import pytest

from support.mgmt.work_stress import Stress

STRESS_SECONDS = float(os.environ.get("STRESS_SECONDS", "30"))
NEEDED = ("knocks", "chunk crawled", "builds", "loads", "rounds", "checks")


async def stressed(dsn: str, *, seconds: float, seed: int) -> Stress:
    stress = Stress(dsn, seed)
    await stress.run(seconds)
    assert stress.wrong == [], (seed, stress.counts)
    assert all(stress.counts[name] for name in NEEDED), stress.counts
    return stress


async def test_every_invariant_holds_while_all_work_at_once(database: str) -> None:
    await stressed(database, seconds=8, seed=17)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
async def test_every_invariant_holds_for_long(
    database: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stress = await stressed(database, seconds=STRESS_SECONDS, seed=seed)
    with capsys.disabled():
        print(f"\nseed {seed}: {dict(stress.counts)}")  # noqa: T201
