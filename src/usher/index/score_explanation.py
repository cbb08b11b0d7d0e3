"""Explains a score: which words of the query match in which field, and how much each adds."""

import json
from collections import Counter
from typing import Final

from usher.index.fields import BODY, NAMES, SECTION_STEMS, STEMS, TITLE_STEMS, URL
from usher.index.index_reader import IndexReader
from usher.index.ranking import RankedHit
from usher.index.tantivy_query import QueryBuilder
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
    scores: Counter[tuple[str, str]] = Counter()
    score, address = hit.score, hit.address
    for words, field, query in builder.clauses(is_good=not hit.weak):
        try:
            explanation = json.loads(query.explain(reader.searcher, address).to_json())
        except ValueError:  # the document does not match
            continue
        place = FIELD_NAMES.get(field, field)
        scores[words, f"{place}, close together" if " " in words else place] += explanation["value"]
    parts: dict[tuple[str, str], float] = dict(scores.most_common())
    matched = sum(parts.values())
    [prior] = reader.priors([address])
    if abs(prior - 1) > MIN_REASON_SHARE:
        parts["page", "prose, and links to it"] = matched * (prior - 1)
    if abs(rest := score - matched * prior) > MIN_REASON_SHARE * score and matched:
        parts["length", "average of all servers"] = rest
    return tuple(
        ScoreReason(words, place, round(part, 4)) for (words, place), part in parts.items()
    )
