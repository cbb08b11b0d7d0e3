"""Endpoints of the door: Usher's knock for many URLs, and Jemison's entree for one."""

from collections import Counter

from msgspec import UNSET

from usher.api.access import ADMIN
from usher.api.context import MgmtCall
from usher.api.door_messages import (
    EntreeAnswer,
    EntreeRequest,
    KnockAnswer,
    KnockRequest,
    KnockVerdict,
)
from usher.door.batch import BatchVerdicts, UrlVerdict
from usher.door.rules import Knock
from usher.errors import BadInput, NotFound
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.messages.crawler import MAX_URLS_PER_REQUEST, LinkVerdicts, VerdictCounts
from usher.urls import UrlRefusal, parse

ENTREE_USAGE = "PUT /api/entree/{full|single}/{pass|nopass}"
NOT_IN_A_HOST = frozenset("/\\?#@ ")
ENDPOINTS = EndpointList()


@ENDPOINTS.post("/v1/knock", f"Ask the door to admit up to {MAX_URLS_PER_REQUEST:,} URLs", ADMIN)
async def knock(call: MgmtCall[KnockRequest]) -> KnockAnswer:
    request = call.body
    check_count(request.urls, "URLs", MAX_URLS_PER_REQUEST)
    verdicts = await call.context.doorkeeper.knock(
        request.urls,
        knock=Knock(request.kind, request.hall_pass),
        found_on=source_host(request.found_on),
        dry_run=request.dry_run,
    )
    return KnockAnswer(
        verdict_counts(verdicts),
        verdicts.counts(),
        verdicts.brought,
        [url_answer(verdict) for verdict in verdicts.answers] if request.answers else UNSET,
    )


def source_host(found_on: str | None) -> str:
    """The host of the page that names a link; empty if it is unknown."""
    if not found_on:
        return ""
    url = parse(found_on)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"found_on cannot be read as a URL: {url.detail}")
    return url.host


def verdict_counts(verdicts: BatchVerdicts) -> VerdictCounts:
    counts: Counter[str] = Counter()
    for reason, count in verdicts.counts().items():
        counts[reason.verdict] += count
    return VerdictCounts(**counts)


def link_verdicts(verdicts: BatchVerdicts) -> LinkVerdicts:
    reasons = {str(reason): count for reason, count in verdicts.counts().items()}
    return LinkVerdicts(verdict_counts(verdicts), reasons)


def url_answer(verdict: UrlVerdict) -> KnockVerdict:
    canonical = None if verdict.url is None else str(verdict.url)
    return KnockVerdict(verdict.given, canonical, verdict.verdict, verdict.reason, verdict.detail)


@ENDPOINTS.put(
    "/api/entree/{kind}/{pass}", "Jemison's door for one URL: full or single, pass or nopass", ADMIN
)
async def entree(call: MgmtCall[EntreeRequest]) -> EntreeAnswer:
    """Unlike Jemison, refuse words of the path that are neither of the two."""
    kind, hall_pass = call.path_params["kind"], call.path_params["pass"]
    if kind not in {"full", "single"} or hall_pass not in {"pass", "nopass"}:
        message = f"There is nothing at /api/entree/{kind}/{hall_pass}."
        raise NotFound(message, hint=ENTREE_USAGE)
    has_pass = hall_pass == "pass"  # noqa: S105 - a hall pass
    request = Knock("full" if kind == "full" else "single", has_pass)
    verdicts = await call.context.doorkeeper.knock([entree_url(call.body)], knock=request)
    (verdict,) = verdicts.answers
    return EntreeAnswer("ok", verdict.verdict, verdict.reason, verdict.detail)


def entree_url(body: EntreeRequest) -> str:
    host = body.host.strip()
    if not host or NOT_IN_A_HOST & set(host):
        raise BadInput("host must be a host's name, at most with its port.", hint=ENTREE_USAGE)
    return f"{body.scheme.strip() or 'https'}://{host}/{body.path.strip().removeprefix('/')}"
