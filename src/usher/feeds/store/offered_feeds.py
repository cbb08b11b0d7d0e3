"""Which of the feeds that crawlers came across are not subscribed to yet."""

from collections.abc import Sequence

from usher.db.pool import Connection
from usher.db.statements import beside
from usher.mgmt.offered_feeds import Offer

store = beside(__file__)


async def without_subscription(conn: Connection, offers: Sequence[Offer]) -> list[Offer]:
    """Those that nobody has subscribed to, in the same order."""
    found = await store.subscribed_to.tuples(conn, urls=[one.url for one in offers])
    known = {url for (url,) in found}
    return [one for one in offers if one.url not in known]
