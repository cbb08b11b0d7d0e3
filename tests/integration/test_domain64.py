"""domain64 in SQL agrees with domain64 in Python."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usher import domain64
from usher.db.pool import Connection

FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WIDE = st.one_of(
    st.sampled_from([-1, 0, 1, 126, 127, 128, 255, 256, 2**24 - 1, 2**24]), st.integers(-5, 2**25)
)
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**58), st.sampled_from([0, 2**63 - 1])
)


async def in_sql(conn: Connection, call: str, *given: object) -> Any:  # noqa: ANN401 - whatever it returns
    """What PostgreSQL answers, or ValueError where it refuses."""
    try:
        async with conn.transaction():
            found = await conn.execute(f"select {call}".encode(), given)
            (answer,) = await found.fetchone() or (None,)
            return answer
    except psycopg.DataError:
        return ValueError


def in_python(function: Callable[..., object], *given: object) -> object:
    try:
        return function(*given)
    except ValueError:
        return ValueError


@FAST
@given(tld=WIDE, domain=WIDE, subdomain=WIDE, reserved=WIDE)
async def test_encode(
    conn: Connection, tld: int, domain: int, subdomain: int, reserved: int
) -> None:
    parts = (tld, domain, subdomain, reserved)
    ours = in_python(lambda *p: domain64.encode(domain64.Parts(*p)), *parts)
    assert (
        await in_sql(conn, "work.domain64_encode(%s::int, %s::int, %s::int, %s::int)", *parts)
        == ours
    )


@FAST
@given(value=VALUES)
async def test_decode(conn: Connection, value: int) -> None:
    def parts(number: int) -> tuple[int, int, int, int]:
        found = domain64.decode(number)
        return found.tld, found.domain, found.subdomain, found.reserved

    theirs = await in_sql(conn, "work.domain64_decode(%s::bigint)::text", value)
    ours = in_python(parts, value)
    assert theirs == (ours if ours is ValueError else str(ours).replace(" ", ""))


@FAST
@given(
    text=st.one_of(
        st.from_regex(r"[0-9A-Fa-f]{1,17}", fullmatch=True),
        st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=4),
    )
)
async def test_from_hex(conn: Connection, text: str) -> None:
    assert await in_sql(conn, "work.domain64_from_hex(%s)", text) == in_python(
        domain64.from_hex, text
    )


@FAST
@given(value=VALUES)
async def test_hex(conn: Connection, value: int) -> None:
    assert await in_sql(conn, "work.domain64_hex(%s::bigint)", value) == in_python(
        domain64.to_hex, value
    )


@FAST
@given(
    tld=st.one_of(st.integers(1, 127), st.just(127)),
    domain=st.one_of(st.integers(0, 2**24 - 1), st.just(2**24 - 1)),
    subdomain=st.one_of(st.integers(0, 2**24 - 1), st.just(2**24 - 1)),
)
async def test_ranges(conn: Connection, tld: int, domain: int, subdomain: int) -> None:
    for call, numbers, ours in (
        ("(%s::int)", (tld,), domain64.tld_range(tld)),
        ("(%s::int, %s::int)", (tld, domain), domain64.domain_range(tld, domain)),
        (
            "(%s::int, %s::int, %s::int)",
            (tld, domain, subdomain),
            domain64.host_range(tld, domain, subdomain),
        ),
    ):
        theirs = await in_sql(conn, f"work.domain64_range{call}", *numbers)
        assert (theirs.lower, theirs.upper, theirs.bounds) == (ours.start, ours.end, "[)")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("work.domain64_encode(1, 135, 1)", 72058173858513152),
        ("work.domain64_hex(72058173858513152)", "0100008700000100"),
        ("work.domain64_from_hex('100008700000100')", 72058173858513152),
        ("lower(work.domain64_range(1))", 72057594037927936),
        ("upper(work.domain64_range(1))", 144115188075855872),
        ("work.max_bigint()", 2**63 - 1),
    ],
)
async def test_published_vectors(conn: Connection, call: str, expected: object) -> None:
    assert await in_sql(conn, call) == expected
