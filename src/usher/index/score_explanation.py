"""Explains a score: which words of the query match in which field, and how much each adds."""

import json
from collections.abc import Iterable
from typing import Final

from usher.index.clauses import ScorePart
from usher.index.fields import BODY, NAMES, SECTION_STEMS, STEMS, TITLE_STEMS, URL
from usher.index.index_reader import IndexReader
from usher.index.query_builder import QueryBuilder
from usher.index.ranking import RankedHit
from usher.index.tantivy_query import to_tantivy
from usher.query.results import ScoreReason

FIELD_NAMES: Final = {
    STEMS: "any form",
    TITLE_STEMS: "title",
    SECTION_STEMS: "heading of a section",
    NAMES: "name of a page or section",
    BODY: "text",
    URL: "address",
}
MIN_REASON_SHARE: Final = 0.001  # of the score


def explain_score(
    reader: IndexReader, builder: QueryBuilder, hit: RankedHit
) -> tuple[ScoreReason, ...]:
    """The parts of the score of a hit, the largest first, with the effects of its prior and its length."""
    scores = []
    for reason in builder.reasons(is_good=not hit.weak):
        try:
            explanation = to_tantivy(reason.clause).explain(reader.searcher, hit.address).to_json()
        except ValueError:  # the document does not match
            continue
        scores.append((reason, json.loads(explanation)["value"]))
    [prior] = reader.priors([hit.address])
    return sum_reasons(scores, hit.score, prior)


def sum_reasons(
    scores: Iterable[tuple[ScorePart, float]], score: float, prior: float
) -> tuple[ScoreReason, ...]:
    """The parts of a score by words and field, and what its prior and its length change."""
    sums: dict[tuple[str, str], float] = {}
    for (words, field, _), value in scores:
        place = FIELD_NAMES.get(field, field)
        key = words, f"{place}, close together" if " " in words else place
        sums[key] = sums.get(key, 0.0) + value
    parts = dict(sorted(sums.items(), key=lambda part: -part[1]))
    matched = sum(parts.values())
    if abs(prior - 1) > MIN_REASON_SHARE:
        parts["page", "prose, and links to it"] = matched * (prior - 1)
    if abs(rest := score - matched * prior) > MIN_REASON_SHARE * score and matched:
        parts["length", "average of all servers"] = rest
    return tuple(
        ScoreReason(words, place, round(part, 4)) for (words, place), part in parts.items()
    )
