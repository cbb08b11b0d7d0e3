"""Arrays that we write ourselves are what PostgreSQL reads."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from usher.db.pool import Connection
from usher.db.statements import array

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.lists(st.none() | TEXTS))
@example(["null", "NULL", None])
@example(['a","b', '"', "\\", "{}", "", " "])
@example(["plain", "with space", "comma,"])
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_texts(conn: Connection, values: list[str | None]) -> None:
    rows = await conn.execute("select %s::text[]", [array(values)])
    [(found,)] = await rows.fetchall()
    assert found == (values if any(value is not None for value in values) else None)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_numbers(conn: Connection, values: list[int | None]) -> None:
    rows = await conn.execute("select %s::bigint[]", [array(values)])
    [(found,)] = await rows.fetchall()
    assert found == (values if any(value is not None for value in values) else None)


async def test_truths(conn: Connection) -> None:
    rows = await conn.execute("select %s::boolean[]", [array([True, False, None])])
    assert await rows.fetchall() == [([True, False, None],)]
    rows = await conn.execute("select %s::boolean[]", [array([True, False])])
    assert await rows.fetchall() == [([True, False],)]
