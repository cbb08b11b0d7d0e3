"""A link leads as far as the scope of the host it was found on."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.domain64 import MAX, OTHER, Parts, Range, domain_range, encode, host_range, tld_range
from usher.door.scope import LinkScope, ScopeKind, allows

NASA = domain_range(1, 0x87)
BLOGS = encode(Parts(1, 0x87, 1))
ONE = Range(BLOGS, BLOGS + 1)

# found on, target, within the same domain
PAIRS = [
    ("www.nasa.gov", "www.nasa.gov", True),
    ("www.nasa.gov", "nasa.gov", True),
    ("nasa.gov", "blogs.nasa.gov:8080", True),
    ("www.bbc.co.uk", "news.bbc.co.uk", True),
    ("www.nasa.gov", "www.nasa.com", False),
    ("nasa.gov", "notnasa.gov", False),
    ("www.nasa.gov", "www.noaa.gov", False),
    ("a.co.uk", "b.co.uk", False),
    ("co.uk", "a.co.uk", False),
    ("me.github.io", "you.github.io", False),
    ("10.0.0.1", "10.0.0.1:81", True),
    ("10.0.0.1", "10.0.0.2", False),
    ("[::1]", "[::1]:81", True),
    ("localhost", "intranet", False),
]
# listed, where the target's number is or will be, allowed
PLACES = [
    ([], ONE, False),
    ([NASA], ONE, True),
    ([NASA], NASA, True),
    ([NASA], tld_range(1), False),  # a new domain of gov is hardly nasa
    ([NASA], None, False),
    ([ONE], ONE, True),
    ([ONE], Range(BLOGS + 256, BLOGS + 257), False),
    ([host_range(1, 0x87, 1)], ONE, True),
    ([host_range(1, 0x87, 1)], NASA, False),  # a new host of nasa is not the one listed
    ([tld_range(2), NASA], ONE, True),
    ([tld_range(1)], NASA, True),
    ([tld_range(1)], tld_range(1), True),
    ([tld_range(OTHER)], domain_range(OTHER, 0xFFFFFF), True),
    ([tld_range(1)], tld_range(2), False),
    ([tld_range(1)], None, False),
]
PARTS = st.builds(Parts, st.integers(1, OTHER), st.integers(0, 3), st.integers(0, 3))


@pytest.mark.parametrize(("found_on", "target", "together"), PAIRS)
def test_host_domain_and_any(found_on: str, target: str, *, together: bool) -> None:
    for one, other in ((found_on, target), (target, found_on)):
        assert allows(LinkScope(), found_on=one, target=other) == (one == other)
        assert allows(LinkScope("domain"), found_on=one, target=other) == together
        assert allows(LinkScope("any"), found_on=one, target=other)


@pytest.mark.parametrize(("listed", "place", "allowed"), PLACES)
def test_listed(listed: list[Range], place: Range | None, *, allowed: bool) -> None:
    scope = LinkScope("listed", tuple(listed))
    assert allows(scope, found_on="a.com", target="b.gov", target_range=place) == allowed
    assert allows(scope, found_on="a.com", target="a.com", target_range=place)


def test_ranges_count_only_when_listed() -> None:
    for kind in ("host", "domain"):
        assert not allows(
            LinkScope(kind, (NASA,)), found_on="a.com", target="nasa.gov", target_range=ONE
        )


@pytest.mark.parametrize("kind", get_args(ScopeKind))
def test_a_host_may_always_lead_to_itself(kind: ScopeKind) -> None:
    assert allows(LinkScope(kind), found_on="a.gov:81", target="a.gov:81")


@given(PARTS, PARTS)
def test_knowing_more_never_takes_a_permission_away(listed: Parts, target: Parts) -> None:
    number = encode(target)
    places = [
        None,
        tld_range(target.tld),
        domain_range(target.tld, target.domain),
        Range(number, number + 1),
    ]
    for one in (tld_range(listed.tld), domain_range(listed.tld, listed.domain), Range(1, MAX)):
        scope = LinkScope("listed", (one,))
        answers = [
            allows(scope, found_on="a.com", target="b.gov", target_range=place) for place in places
        ]
        assert answers == sorted(answers)
        assert answers[-1] == (number in one)
