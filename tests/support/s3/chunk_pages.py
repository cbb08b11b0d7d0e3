"""A site whose pages are counted as they are fetched, and the settings of an object store."""

from collections import Counter

from support.s3.server import OPERATOR, S3Server
from support.site.website import Response, Website


def site(pages: int) -> Website:
    every = "".join(f"<a href='/{number}'>{number}</a>" for number in range(pages))
    front = Response(f"<title>Start</title><p>velvet front page</p>{every}".encode())
    texts = {
        f"/{number}": Response(f"<title>Seat</title><p>velvet number{number}</p>".encode())
        for number in range(pages)
    }
    return Website({"/": front, **texts})


def urls(web: Website, pages: int) -> list[str]:
    return sorted([web.url("/"), *(web.url(f"/{number}") for number in range(pages))])


def store_settings(server: S3Server, bucket: str = "chunks") -> dict[str, object]:
    return {
        "chunk_store": f"s3://{bucket}/usher",
        "s3_endpoint": server.endpoint,
        "s3_access_key": OPERATOR.access_key,
        "s3_secret_key": OPERATOR.secret_key,
    }


def fetches(web: Website) -> Counter[str]:
    return Counter(request.route for request in web.log if request.route != "/robots.txt")
