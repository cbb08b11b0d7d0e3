"""A PDF is read page by page; a bad one is a problem, not an error."""

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.site.pdfs import paper
from usher.crawl.page import pdf
from usher.crawl.page.parse import extract_documents, parse_page
from usher.urls import Url, parse

PLACE = parse("https://example.org/files/report%20one.pdf")
assert isinstance(PLACE, Url)
HERE = PLACE
INFO = "/Title(A report)/CreationDate(D:20240131120000+01'00')/ModDate(D:2025)"


def test_one_document_for_each_page_with_text() -> None:
    pages = extract_documents(
        paper(["First words", "", "Last words"], info=INFO), HERE, media_type="application/pdf"
    )
    assert [page.url.rpartition("#")[2] for page in pages] == ["page=1", "page=3"]
    assert [page.text for page in pages] == ["First words", "Last words"]
    assert [page.title for page in pages] == ["A report, page 1", "A report, page 3"]
    assert pages[0].published == datetime(2024, 1, 31, 11, tzinfo=UTC)
    assert pages[0].modified == datetime(2025, 1, 1, tzinfo=UTC)
    assert pages[0].text64 != pages[1].text64
    assert not pages[0].problem


def test_without_a_title_it_is_the_name_of_the_file() -> None:
    [page] = extract_documents(
        paper(["Words"]), HERE, media_type="application/pdf", robots_tags=["noindex"]
    )
    assert (page.title, page.noindex) == ("report one.pdf, page 1", True)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (paper(["Secret"], locked=True), "it is encrypted"),
        (b"%PDF-1.4 nothing", "it is not a readable PDF"),
        (b"", "it is not a readable PDF"),
        (paper([""]), "it has no text"),
        (paper(["Words"])[:300], "it is not a readable PDF"),
    ],
)
def test_an_unreadable_pdf_has_a_reason(body: bytes, problem: str) -> None:
    [page] = extract_documents(body, HERE, media_type="application/pdf")
    assert (page.url, page.title, page.text, page.problem) == (
        str(HERE),
        "report one.pdf",
        "",
        problem,
    )


def test_pages_and_text_are_bounded() -> None:
    found = pdf.read_pdf(paper(["x"] * (pdf.MAX_PAGES + 1)))
    assert len(found.pages) == pdf.MAX_PAGES
    assert found.problem == "only its first 500 of 501 pages were read"
    assert (
        pdf.read_pdf(b"%PDF" + b"x" * pdf.MAX_BYTES).problem == "it is larger than 50,000,000 bytes"
    )


def test_a_pdf_can_be_read_by_another_process() -> None:
    found = pdf.read_pdf(paper(["Words"]))
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes


def test_the_crawler_does_not_open_a_pdf() -> None:
    found = parse_page(paper(["Words"]), HERE, media_type="application/pdf")
    assert (found.kind, found.text64, found.links) == ("pdf", 0, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D:20240131", datetime(2024, 1, 31, tzinfo=UTC)),
        ("20240131235959Z", datetime(2024, 1, 31, 23, 59, 59, tzinfo=UTC)),
        ("D:20240131000000-08'30'", datetime(2024, 1, 31, 8, 30, tzinfo=UTC)),
        ("D:20241399", None),
        ("D:00000000", None),
        ("D:20240101000000+99'99'", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates(text: str, expected: datetime | None) -> None:
    assert pdf.parse_date(text) == expected


WHOLE = paper(["One", "Two"], info=INFO)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=20))
def test_broken_pdfs_never_raise(at: int, junk: bytes) -> None:
    assert extract_documents(
        WHOLE[:at] + junk + WHOLE[at + len(junk) :], HERE, media_type="application/pdf"
    )
