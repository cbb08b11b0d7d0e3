"""A page becomes a document or is skipped with a reason."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.crawl.page.document import PageDocument
from usher.crawl.page.sections import PageSection
from usher.index.document import (
    MAX_BODY,
    MAX_HEADINGS,
    MAX_TITLE,
    IndexDocument,
    IndexSection,
    SkippedPage,
    from_page,
    site_names,
)
from usher.query.tokens import fold, language_code, space_words, strip_accents

NOW = datetime(2026, 11, 16, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SamplePage(PageDocument):
    """A page as `crawl.page` parses it, with sample values."""

    url: str = "https://a.org/x"
    title: str = "A title"
    headings: list[str] = field(default_factory=lambda: ["One", "Two"])
    text: str = "Some text."
    description: str = "It is about."
    language: str = "en-GB"
    simhash: int = -5
    text64: int = 7
    rest: str = "Other text."
    sections: list[PageSection] = field(default_factory=lambda: [PageSection("one", "One", 0, 10)])


def document_of(page: PageDocument) -> IndexDocument | SkippedPage:
    return from_page(page, key="https://a.org/x", host="a.org", chunk=3, crawled=NOW, domain64=99)


def test_a_page() -> None:
    assert document_of(SamplePage()) == IndexDocument(
        key="https://a.org/x", url="https://a.org/x", host="a.org", chunk=3, crawled=NOW, domain64=99, title="A title",
        headings=("One", "Two"), body="Some text.", description="It is about.", language="en", simhash=-5, text64=7,
        rest="Other text.", sections=(IndexSection("one", "One", 0, 10),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (SamplePage(noindex=True), "noindex"),
        (SamplePage(title=" ", text="\n "), "no text"),
        (SamplePage(title="", text="", problem="it is encrypted"), "it is encrypted"),
    ],
)
def test_pages_that_are_skipped(page: SamplePage, reason: str) -> None:
    assert document_of(page) == SkippedPage("https://a.org/x", reason)


def test_dates_are_in_utc_and_not_in_the_future() -> None:
    east = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    later = NOW + timedelta(days=2)
    naive = datetime(2020, 1, 1)  # noqa: DTZ001 - pages write such dates
    cases = [
        (SamplePage(published=east), datetime(2025, 12, 31, 23, tzinfo=UTC)),
        (SamplePage(modified=east), datetime(2025, 12, 31, 23, tzinfo=UTC)),
        (SamplePage(published=later, modified=naive), naive.replace(tzinfo=UTC)),
        (SamplePage(published=later), None),
    ]
    for page, expected in cases:
        document = document_of(page)
        assert isinstance(document, IndexDocument)
        assert document.published == expected


def test_long_texts_are_cut_and_the_rest_is_counted() -> None:
    page = SamplePage(text="x" * (MAX_BODY + 5), title="t" * 5000, headings=["h" * 5000] * 500)
    document = document_of(page)
    assert isinstance(document, IndexDocument)
    assert len(document.body) == MAX_BODY
    assert document.shortened == 5
    assert len(document.title) == len(document.headings[0]) == MAX_TITLE
    assert len(document.headings) == MAX_HEADINGS


@given(st.text(st.characters(), max_size=50), st.text(max_size=10))
def test_any_text_can_be_written_to_a_file(text: str, code: str) -> None:
    page = replace(SamplePage(), title=text, text=f"x{text}\ud800", language=code, headings=[text])
    document = document_of(page)
    assert isinstance(document, IndexDocument)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(document), type=IndexDocument) == document


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("www.bbc.co.uk", ["www.bbc.co.uk", "bbc.co.uk", "co.uk", "uk"]),
        ("a.org:8080", ["a.org:8080", "a.org", "org"]),
        ("127.0.0.1:81", ["127.0.0.1:81", "127.0.0.1"]),
        ("[::1]:81", ["[::1]:81", "[::1]"]),
        ("[::1]", ["[::1]"]),
        ("localhost", ["localhost"]),
    ],
)
def test_a_host_matches_its_parent_domains(host: str, names: list[str]) -> None:
    assert list(site_names(host)) == names


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en", "en"),
        ("DE-de", "de"),
        ("nb_NO", "no"),
        ("", ""),
        ("english", ""),
        ("x", ""),
        ("zh-Hans-CN", "zh"),
    ],
)
def test_languages(text: str, code: str) -> None:
    assert language_code(text) == code


def test_equal_words_fold_to_the_same_text() -> None:
    assert fold("Straße ﬁ \uff38\u00a0e\u0301") == "strasse fi x e"
    assert strip_accents("ÉLÈVE") == "eleve"
    assert space_words("Das ist 東京").split() == ["das", "ist", "東", "京"]
    assert space_words("plain ASCII") == "plain ascii"


MIXED = st.text(st.sampled_from("aZ \u00a0éÉßΣжЖ…ǅÅ\u0301½Ⅳ東が\ud800") | st.characters())


@given(MIXED)
def test_fast_folding_equals_normal_folding(text: str) -> None:
    # Devanagari is always folded in the slow way.
    assert fold(text) == fold(f"{text} क").removesuffix(" क")
    assert fold(f"abc {text} def") == fold(f"abc {text} def क").removesuffix(" क")


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("İstanbul", "istanbul"),
        ("क्या", "कया"),
        ("Καλημέρα", "καλημερα"),
        ("Ёлка й", "елка й"),
        ("مُحَمَّد", "محمد"),
        ("co\u00adoperate", "cooperate"),
        ("がぎ", "がぎ"),
        ("한국", "한국"),
    ],
)
def test_marks_neither_split_words_nor_tell_them_apart(text: str, folded: str) -> None:
    assert fold(text) == folded


@given(st.text())
def test_folding_twice_does_not_change_the_words(text: str) -> None:
    assert space_words(space_words(text)).split() == space_words(fold(space_words(text))).split()
    assert strip_accents(strip_accents(text)) == strip_accents(text)
