"""The door over HTTP: our own knock for many URLs, and Jemison's entree for one."""

from collections import Counter

from msgspec import UNSET

from usher.api.access import ADMIN
from usher.api.context import MgmtCall
from usher.api.door_messages import (
    EntreeAnswer,
    EntreeRequest,
    KnockAnswer,
    KnockRequest,
    UrlVerdict,
)
from usher.door.batch import BatchVerdicts, UrlVerdict
from usher.door.rules import Knock
from usher.errors import BadInput, NotFound
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.crawler import MAX_URLS_PER_REQUEST, LinkVerdicts, VerdictCounts
from usher.urls import UrlRefusal, parse

WORDS = "PUT /api/entree/{full|single}/{pass|nopass}"
NOT_IN_A_HOST = frozenset("/\\?#@ ")


async def knock(call: MgmtCall[KnockRequest]) -> KnockAnswer:
    asked = call.body
    if len(asked.urls) > MAX_URLS_PER_REQUEST:
        message = f"{len(asked.urls):,} URLs are more than {MAX_URLS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Ask in several requests.")
    told = await call.context.doorkeeper.knock(
        asked.urls,
        knock=Knock(asked.kind, asked.hall_pass),
        found_on=host_of(asked.found_on),
        dry_run=asked.dry_run,
    )
    return KnockAnswer(
        verdict_counts(told),
        told.counts(),
        told.brought,
        [url_verdict(answer) for answer in told.answers] if asked.answers else UNSET,
    )


def host_of(found_on: str | None) -> str:
    if not found_on:
        return ""
    url = parse(found_on)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"found_on cannot be read as a URL: {url.detail}")
    return url.host


def verdict_counts(answers: BatchVerdicts) -> VerdictCounts:
    counts: Counter[str] = Counter()
    for reason, count in answers.counts().items():
        counts[reason.verdict] += count
    return VerdictCounts(**counts)


def link_verdicts(answers: Answers) -> LinkVerdicts:
    reasons = {str(reason): count for reason, count in answers.counts().items()}
    return LinkVerdicts(verdict_counts(answers), reasons)


def url_verdict(answer: UrlVerdict) -> UrlVerdict:
    canonical = None if answer.url is None else str(answer.url)
    return UrlVerdict(answer.given, canonical, answer.verdict, answer.reason, answer.detail)


async def entree(call: MgmtCall[EntreeRequest]) -> EntreeAnswer:
    """Unlike the original, a word that is neither of the two is not taken for the second one."""
    kind, passes = call.path_params["kind"], call.path_params["pass"]
    if kind not in {"full", "single"} or passes not in {"pass", "nopass"}:
        raise NotFound(f"There is nothing at /api/entree/{kind}/{passes}.", hint=WORDS)
    asked = Knock("full" if kind == "full" else "single", passes == "pass")
    told = await call.context.doorkeeper.knock([address(call.body)], knock=asked)
    (answer,) = told.answers
    return EntreeAnswer("ok", answer.verdict, answer.reason, answer.detail)


def address(body: EntreeRequest) -> str:
    host = body.host.strip()
    if not host or NOT_IN_A_HOST & set(host):
        raise BadInput("host must be a host's name, with its port at most.", hint=WORDS)
    return f"{body.scheme.strip() or 'https'}://{host}/{body.path.strip().removeprefix('/')}"


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/knock",
        knock,
        KnockRequest,
        KnockAnswer,
        f"May these URLs come in? Up to {MAX_URLS_PER_REQUEST:,} at once",
        access=ADMIN,
    ),
    Endpoint(
        "PUT",
        "/api/entree/{kind}/{pass}",
        entree,
        EntreeRequest,
        EntreeAnswer,
        "Jemison's door for one URL: full or single, pass or nopass",
        access=ADMIN,
    ),
)
