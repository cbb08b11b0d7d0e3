"""A small hostile web site on loopback; see website.py."""

from collections.abc import Iterator

import pytest

from support.site.website import Website


@pytest.fixture
def site() -> Iterator[Website]:
    with Website() as site:
        yield site
