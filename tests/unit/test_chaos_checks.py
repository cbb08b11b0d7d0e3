"""The checks of the fault injection find what they are to find."""

from chaos.checks import Fetch, Window, impolite, reason_of
from chaos.pages import Page, first_pages
from chaos.report import MUST_BE_ZERO, Injected, Report

HOST = "10.77.1.1"
LEASE_ENDED = (10.0, 30.0, "the lease ended")


def test_two_requests_of_one_host_closer_than_its_delay() -> None:
    polite = [Fetch(1.0, HOST, "/1"), Fetch(1.3, HOST, "/2"), Fetch(1.31, "10.77.1.2", "/1")]
    assert impolite(polite) == []
    (problem,) = impolite([*polite, Fetch(1.5, HOST, "/3")])
    assert "http://10.77.1.1/2 then http://10.77.1.1/3" in problem


def test_a_second_fetch_needs_a_chunk_that_was_lost_between() -> None:
    assert reason_of(12.0, 35.0, [LEASE_ENDED], []) == "chunk lost: the lease ended"
    assert reason_of(12.0, 20.0, [LEASE_ENDED], []) == ""
    assert reason_of(8.0, 35.0, [LEASE_ENDED], []) == ""
    assert reason_of(31.0, 35.0, [LEASE_ENDED], []) == ""


def test_a_cut_link_explains_a_second_fetch_of_a_crawler_only() -> None:
    cut = Window("partition", "crawler-1", 5.0, 15.0)
    assert reason_of(10.0, 20.0, [], [cut]) == "answer lost: partition"
    assert reason_of(16.0, 20.0, [], [cut]) == ""
    assert reason_of(10.0, 20.0, [], [Window("partition", "mgmt-1", 5.0, 15.0)]) == ""


def test_the_summary_names_what_is_not_zero() -> None:
    report = Report(7, faults=[Injected("kill", "mgmt-1", 3, 0.1, 2.0)])
    assert report.failures == []
    assert f"{len(MUST_BE_ZERO)} passed, 0 failed in chaos (seed 7)" in report.text()
    report.problems["lost"].append("a page")
    report.faults.append(Injected("kill", "front-1", 3, 0.1, None))
    assert report.summary().endswith("1 failed in chaos (seed 7): lost")
    assert any(line.split() == ["kill", "2", "2.0", "never", "0.1"] for line in report.recovery())


def test_each_page_has_a_word_of_its_own_in_every_edition() -> None:
    pages = first_pages()
    assert len({page.word for page in pages}) == len(pages)
    changing = Page(HOST, 3)
    assert changing.text(1) != changing.text(2)
    assert changing.word in changing.text(2)
