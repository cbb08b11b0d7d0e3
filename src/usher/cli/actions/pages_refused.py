"""`usher pages refused`: a sample of URLs that the door refused."""

from typing import Any

from usher.cli.actions.pages import MAX_LINE_CHARACTERS, reader_transaction
from usher.cli.app import App, show_list
from usher.cli.area_access import call_in
from usher.cli.output import display_time
from usher.door import refused_urls
from usher.wording import printable, relative_time


def list_refused(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    listed = call_in(reader_transaction(app), refused_urls.refused_urls, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            refused.reason,
            relative_time(refused.at, now),
            printable(refused.detail or "-"),
            printable(refused.url, MAX_LINE_CHARACTERS),
        )
        for refused in listed
    ]
    show_list(app, listed, ("REASON", "REFUSED", "DETAIL", "URL"), rows, as_json=as_json)
