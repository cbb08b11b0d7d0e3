"""How the page, JSON and Atom show the sections of a result."""

import re

from support.index.documents import NOW
from usher.query.language import parse_query
from usher.query.results import Hit, Passage, SectionLink
from usher.search.assets import load_assets
from usher.search.atom import atom_feed
from usher.search.json_results import gov_results, listing
from usher.search.merge import MergedHit, MergedHits
from usher.search.pages import SearchPages
from usher.search.search_result import SearchResult

SECTIONS = (SectionLink("Seats \u203a Velvet", "velvet"), SectionLink("<b>", '"><script>'))


def result(url: str = "https://a.org/guide", *, is_from_first: bool = True) -> SearchResult:
    hit = Hit(1.0, "a.org/guide", url, "Guide", "a.org", 1, NOW)
    passage = Passage(
        [("Red ", False), ("velvet", True), ("\nseats.", False)], SECTIONS, is_from_first
    )
    merged = MergedHits(1, (MergedHit(hit, "server"),))
    return SearchResult(parse_query("velvet"), merged, {(url, 1): passage}, 0.01)


def test_the_page_links_to_the_sections() -> None:
    page = SearchPages(load_assets()).results(result(), 1)
    links = re.findall(r'class="section"[^>]*><a href="([^"]*)">(.*?)</a>', page)
    assert links[0] == ("https://a.org/guide#velvet", "Seats \u203a <mark>Velvet</mark>")
    assert links[1] == ("https://a.org/guide#%22%3E%3Cscript%3E", "&lt;b&gt;")
    assert (
        page.index("#velvet")
        < page.index("Red <mark>velvet</mark>\nseats.")
        < page.index("%3Cscript")
    )


def test_the_sections_of_an_unsafe_address_are_no_links() -> None:
    page = SearchPages(load_assets()).results(result("javascript:alert(1)"), 1)
    assert 'href="javascript' not in page
    assert "Seats" in page


def test_json_has_the_sections_and_the_one_of_the_snippet() -> None:
    [item] = listing(result(), 1).results
    assert item.section == "Seats \u203a Velvet"
    assert item.snippet == "Red velvet\nseats."
    assert item.sections[0].url == "https://a.org/guide#velvet"
    [other] = listing(result(is_from_first=False), 1).results
    assert other.section is None
    assert len(other.sections) == 2


def test_the_search_gov_api_has_sections_and_one_line() -> None:
    [item] = gov_results(result(), 0, marked=True).web.results
    assert item.snippet == "Red \ue000velvet\ue001 seats."
    assert item.sections[0].title == "Seats \u203a \ue000Velvet\ue001"


def test_the_feed_names_the_section_of_the_text() -> None:
    [entry] = atom_feed(result(), 1, origin="http://localhost").entries
    assert entry.text.startswith("Seats \u203a Velvet \u2014 Red velvet")


def test_the_title_and_the_headings_highlight_other_forms_of_the_words() -> None:
    hit = Hit(1.0, "a.org/pay", "https://a.org/pay", "What a keeper earned", "a.org", 1, NOW)
    sections = (SectionLink("The keeper's day", "day"),)
    passage = Passage([("Pay.", False)], sections, is_from_first=True, forms=("keeper",))
    merged = MergedHits(1, (MergedHit(hit, "server"),))
    keepers = SearchResult(parse_query("keepers"), merged, {(hit.url, 1): passage}, 0.01)
    page = SearchPages(load_assets()).results(keepers, 1)
    assert "What a <mark>keeper</mark> earned" in page
    assert "The <mark>keeper</mark>&#39;s day" in page or "The <mark>keeper</mark>'s day" in page
    [item] = gov_results(keepers, 0, marked=True).web.results
    assert item.title == "What a \ue000keeper\ue001 earned"
