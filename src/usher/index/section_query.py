"""What sections add to the score of a page: words in their headings, and names.

BM25 prefers short pages that mention a word to the large reference page that defines it. The scores of sections do not
depend on the length of the page. Measured on two manuals (docs/adr/0028).
"""

from collections.abc import Iterator
from typing import Final

from tantivy import Query as TantivyQuery

from usher.index import fields
from usher.index.clauses import Clause, constant, exact
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


def section_clauses(words: QueryWords) -> list[Clause]:
    """The parts of a score that come from sections."""
    return [*_word_clauses(words), *_pair_clauses(words), *_query_clauses(words)]


def good_names(words: QueryWords) -> list[TantivyQuery]:
    """Queries for pages that are good matches because of a name, whatever other words they lack."""
    weights = {word.text: word.times * words.idf(word) for word in words.optional if word.text}
    least = MIN_NAME_SHARE * sum(weights.values())
    return [exact(NAMES, ANY_NAME + text) for text, weight in weights.items() if weight >= least]


def _word_clauses(words: QueryWords) -> Iterator[Clause]:
    for word in words.optional:
        if word.is_unspaced:
            continue
        idf = words.idf(word)
        for stem in words.stems(word.text):
            query = constant(exact(SECTION_STEMS, stem), SECTION_WEIGHT * idf)
            yield Clause(word.text, SECTION_STEMS, query)
        for kind, weight in NAME_WEIGHTS.items():
            yield _name_clause(kind, word.text, weight * idf)


def _pair_clauses(words: QueryWords) -> Iterator[Clause]:
    for pair in list(words.pairs())[:MAX_PAIRS]:
        stems = [words.stems(word)[0] for word in pair]
        query = TantivyQuery.phrase_query(fields.schema(), SECTION_STEMS, list(stems), PAIR_SLOP)
        score = PAIR_WEIGHT * sum(words.idf(QueryWord(word)) for word in pair)
        yield Clause(" ".join(pair), SECTION_STEMS, constant(query, score))


def _query_clauses(words: QueryWords) -> Iterator[Clause]:
    """The whole query as a name, and words such as "for" if the query is short."""
    groups = [group for group in words.query.groups if not is_required(group)]
    if name := joined_name(" ".join(group[0].text for group in groups)):
        for kind, score in QUERY_NAME_SCORES.items():
            yield _name_clause(kind, name, score)
    for keyword in words.keywords:
        yield _name_clause(KEY_NAME, joined_name(keyword), KEYWORD_SCORE)


def _name_clause(kind: str, name: str, score: float) -> Clause:
    return Clause(name, NAMES, constant(exact(NAMES, kind + name), score))
