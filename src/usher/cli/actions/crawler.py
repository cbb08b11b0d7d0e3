"""`usher fetch`: fetch one page that a person names."""

from usher.cli.app import App
from usher.crawl.page_visit import PageVisit
from usher.crawl.service import make_fetcher
from usher.crawl.show import fetch_page
from usher.local.operator_urls import with_working_scheme


async def fetch_typed(app: App, text: str) -> PageVisit:
    """Fetch a page; without a typed scheme with http if its host has no https, as `usher crawl` does."""
    async with make_fetcher(app.settings) as fetcher:
        url = await with_working_scheme(fetcher, text, say=app.say)
    return await fetch_page(app.settings, url)
