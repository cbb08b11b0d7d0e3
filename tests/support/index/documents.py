"""Sample documents, and searches for them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.query.language import Query, parse_query

NOW = datetime(2026, 11, 16, tzinfo=UTC)
HEAP = 15_000_000


def page(path: str, body: str, *, host: str = "a.org", **facts: Any) -> IndexDocument:  # noqa: ANN401 - whatever there is
    url = f"https://{host}/{path}"
    kept: dict[str, Any] = {
        "key": url,
        "url": url,
        "host": host,
        "chunk": 1,
        "crawled": NOW,
        "title": path,
        "language": "en",
    }
    return IndexDocument(body=body, **(kept | facts))


PAGES = [
    page("index", "An index makes a query fast. Write the log ahead.", title="About speed"),
    page("indexing", "Indexing takes time, and indexed rows take space.", title="Work"),
    page("wal", "The write ahead log is written first.", title="Reliability"),
    page("apart", "Ahead of the log, write nothing at all.", title="Order"),
    page("häuser", "Viele Häuser stehen hier. Das Haus ist alt.", title="Wohnen", language="de"),
    page("cafe", "Un café près de l'école.", title="Manger", language="fr"),
    page("tokyo", "東京タワーは東京にあります。天気は良いです。", title="塔", language="ja"),
    page("hindi", "नमस्ते दुनिया, हिन्दी में", title="Hindi", language="hi"),
    page(
        "nasa",
        "Rockets and moons.",
        host="www.nasa.gov",
        title="NASA",
        published=NOW - timedelta(days=400),
    ),
    page(
        "blog",
        "Rockets again.",
        host="blogs.nasa.gov",
        title="Blog",
        published=NOW - timedelta(days=3),
    ),
    page("port", "A rocket elsewhere.", host="b.org:8080", title="Port"),
    page("unknown", "Indexes of an unknown language.", title="?", language=""),
]


def found(engine: Engine, text: str | Query, **how: Any) -> list[str]:  # noqa: ANN401
    query = parse_query(text) if isinstance(text, str) else text
    return [hit.url.rpartition("/")[2] for hit in engine.search(query, **how).hits]
