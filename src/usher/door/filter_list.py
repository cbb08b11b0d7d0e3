"""Reads a list of filters as an operator writes it: JSON, checked with the rules of the door."""

import json
from typing import Any, Final

from usher.door import filters
from usher.door.admin import FilterList
from usher.errors import BadInput

FILTER_EXAMPLE: Final = """Example: [{"name": "long", "rule": "length", "most": 500}]"""


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {error}.", hint=FILTER_EXAMPLE) from error


def checked_filters(rules: object) -> FilterList:
    """The filters; BadInput if one of them is not valid."""
    if not isinstance(rules, list):
        raise BadInput("Filters must be a list.", hint=FILTER_EXAMPLE)
    filters.compile(rules)
    return rules
