"""What sections add to the score of a page: words in their headings, and names.

BM25 prefers short pages that mention a word to the large reference page that defines it. The scores of sections do not
depend on the length of the page. Measured on two manuals (docs/adr/0028).
"""

from collections.abc import Iterator
from typing import Final

from usher.index.clauses import ConstantScore, ExactValue, QueryClause, ScoredPhrase, ScorePart
from usher.index.fields import NAMES, SECTION_STEMS
from usher.index.query_words import QueryWord, QueryWords
from usher.index.section_names import ANY_NAME, EXACT_NAME, KEY_NAME, OWN_NAME, joined_name
from usher.query.language import is_required

# Times the weight of the word.
SECTION_WEIGHT: Final = 0.7  # a word in the heading of a section
PAIR_WEIGHT: Final = 0.7  # two words close together in a heading
NAME_WEIGHTS: Final = {ANY_NAME: 0.7, OWN_NAME: 0.8, KEY_NAME: 0.3}  # a word that is a name
# A page or section with the query as its name comes first even if the words are frequent.
QUERY_NAME_SCORES: Final = {OWN_NAME: 3.5, EXACT_NAME: 1.0}
KEYWORD_SCORE: Final = 5.0  # "for" in "for loop" if a section is about "for"
MAX_PAIRS: Final = 5
PAIR_SLOP: Final = 2  # words that may stand between two words
MIN_NAME_SHARE: Final = 0.5  # of the weight of a query, for a name that makes a page a good match


def section_reasons(words: QueryWords) -> list[ScorePart]:
    """The parts of a score that come from sections."""
    return [*_word_reasons(words), *_pair_reasons(words), *_query_reasons(words)]


def good_names(words: QueryWords) -> list[QueryClause]:
    """Clauses for pages that are good matches because of a name, whatever other words they lack."""
    weights = {word.text: word.times * words.idf(word) for word in words.optional if word.text}
    least = MIN_NAME_SHARE * sum(weights.values())
    return [
        ExactValue(NAMES, ANY_NAME + text) for text, weight in weights.items() if weight >= least
    ]


def _word_reasons(words: QueryWords) -> Iterator[ScorePart]:
    for word in words.optional:
        if word.is_unspaced:
            continue
        idf = words.idf(word)
        for stem in words.stems(word.text):
            clause = ConstantScore(ExactValue(SECTION_STEMS, stem), SECTION_WEIGHT * idf)
            yield ScorePart(word.text, SECTION_STEMS, clause)
        for kind, weight in NAME_WEIGHTS.items():
            yield _name_reason(kind, word.text, weight * idf)


def _pair_reasons(words: QueryWords) -> Iterator[ScorePart]:
    for pair in list(words.pairs())[:MAX_PAIRS]:
        stems = tuple(words.stems(word)[0] for word in pair)
        clause = ScoredPhrase(SECTION_STEMS, stems, slop=PAIR_SLOP)
        score = PAIR_WEIGHT * sum(words.idf(QueryWord(word)) for word in pair)
        yield ScorePart(" ".join(pair), SECTION_STEMS, ConstantScore(clause, score))


def _query_reasons(words: QueryWords) -> Iterator[ScorePart]:
    """The whole query as a name, and words such as "for" if the query is short."""
    groups = [group for group in words.query.groups if not is_required(group)]
    if name := joined_name(" ".join(group[0].text for group in groups)):
        for kind, score in QUERY_NAME_SCORES.items():
            yield _name_reason(kind, name, score)
    for keyword in words.keywords:
        yield _name_reason(KEY_NAME, joined_name(keyword), KEYWORD_SCORE)


def _name_reason(kind: str, name: str, score: float) -> ScorePart:
    return ScorePart(name, NAMES, ConstantScore(ExactValue(NAMES, kind + name), score))
