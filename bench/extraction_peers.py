"""One extractor in its own venv: prints the main texts of the pages in a directory and the CPU time as one JSON object.

`python extraction_peers.py trafilatura|readability|resiliparse DIRECTORY`; the pages are files `*.html.gz`.
"""

import sys

sys.path.pop(0)  # bench/queue.py must not hide the standard module queue

import gzip
import json
import re
from collections.abc import Callable
from html import unescape
from importlib import import_module
from pathlib import Path
from time import process_time

TAG = re.compile(r"<[^>]*>")


def trafilatura() -> Callable[[str], str]:
    """As a search engine would use it: without comments."""
    extract = import_module("trafilatura").extract
    return lambda html: extract(html, include_comments=False) or ""


def readability() -> Callable[[str], str]:
    document = import_module("readability").Document

    def extract(html: str) -> str:
        summary = document(html).summary()
        return unescape(TAG.sub(" ", summary.replace("&#13;", " ")))

    return extract


def resiliparse() -> Callable[[str], str]:
    extract = import_module("resiliparse.extract.html2text").extract_plain_text
    return lambda html: extract(html, main_content=True, links=False, list_bullets=False)


EXTRACTORS = {
    "trafilatura": trafilatura,
    "readability": readability,
    "resiliparse": resiliparse,
}


def main(name: str, directory: Path) -> None:
    extract = EXTRACTORS[name]()
    texts: dict[str, str] = {}
    seconds = 0.0
    for file in sorted(directory.glob("*.html.gz")):
        html = gzip.decompress(file.read_bytes()).decode("utf-8", "replace")
        began = process_time()
        try:
            texts[file.name.partition(".")[0]] = extract(html)
        except Exception as error:  # noqa: BLE001 - a page that a peer cannot read has no text
            print(f"{file.name}: {error!r}", file=sys.stderr)
        seconds += process_time() - began
    print(json.dumps({"texts": texts, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
