"""`usher explain --json`: one URL from the door to the search page, as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from usher.cli.actions.hosts_details import host_json, private_json, robots_json
from usher.door import cadence
from usher.door.guestbook import GuestbookRow
from usher.mgmt import queries
from usher.mgmt.page_history import PageHistory
from usher.urls import Scheme
from usher.wording import encodable, json_fields, record_json, records_json

if TYPE_CHECKING:
    from usher.observe.explain import DoorAnswer, UrlExplanation


def explanation_json(explanation: "UrlExplanation") -> dict[str, Any]:
    page = explanation.page
    return {
        "url": encodable(explanation.given),
        "canonical": str(explanation.url) if explanation.url else None,
        "refused": asdict(explanation.refused) if explanation.refused else None,
        "host": host_json(explanation.host) if explanation.host else None,
        "filters": list(explanation.filters),
        "path": explanation.path,
        "filtered": asdict(explanation.filtered) if explanation.filtered else None,
        "page": page_json(page) if page else None,
        "private": private_json(explanation.private) if explanation.is_private else None,
        "removals": records_json(explanation.removals),
        "would": [door_answer_json(answer) for answer in explanation.would],
        **crawl_state_json(explanation),
    }


def page_json(page: GuestbookRow) -> dict[str, Any]:
    own = cadence.show(page.cadence) if page.cadence else None
    return json_fields({**asdict(page), "scheme": Scheme(page.scheme).word, "cadence": own})


def door_answer_json(answer: "DoorAnswer") -> dict[str, Any]:
    return {
        "kind": answer.kind,
        "pass": answer.hall_pass,
        "verdict": answer.verdict.value,
        "reason": answer.reason.value,
        "detail": answer.detail,
        "row": answer.row,
    }


def crawl_state_json(explanation: "UrlExplanation") -> dict[str, Any]:
    trail, decision, finding = explanation.trail, explanation.robots, explanation.finding
    robots = decision and {
        "allowed": decision.allowed,
        "rule": decision.rule,
        **robots_json(decision.read),
    }
    return {
        "crawl": crawl_json(trail) if trail else None,
        "robots": robots,
        "pace": record_json(explanation.rest) if explanation.rest else None,
        "text": text_json(trail) if trail else None,
        "index": index_json(trail) if trail else None,
        "findable": finding and finding.is_searchable,
        "why": finding and finding.words,
        "hint": finding.command or None if finding else None,
    }


def crawl_json(trail: PageHistory) -> dict[str, Any]:
    chunk, text = trail.crawled, trail.text
    return json_fields(
        {
            "reason": text.reason,
            "chunk": chunk and chunk.id,
            "crawler": chunk and chunk.crawler,
            "claimed_at": chunk and chunk.claimed_at,
            "misses": text.misses,
            "attempts": text.attempts,
        }
    )


def text_json(trail: PageHistory) -> dict[str, Any]:
    text = trail.text
    number = None if text.text64 is None else f"{text.text64 % 2**64:016x}"
    return {"text64": number, "same_as": text.original, "noindex": text.noindex}


def index_json(trail: PageHistory) -> dict[str, Any]:
    chunk = trail.indexed
    return json_fields(
        {
            "chunk": trail.text.indexed_in,
            "stage": chunk and queries.stage(chunk),
            "builder": chunk and chunk.builder,
            "built_at": chunk and chunk.built_at,
            "propagated_at": chunk and chunk.propagated_at,
            "reason": chunk and chunk.reason,
            "rows": trail.workers.rows,
            "copies": records_json(trail.copies),
            "outdated": records_json(trail.outdated),
        }
    )
