"""Finds the anchor texts of a page: what it calls the pages that it links to."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from selectolax.lexbor import LexborNode

from usher.anchor_text import Anchor, clean_anchor
from usher.crawl.page.links import without_fragment

MAX_ANCHORS: Final = 1_000  # of a page
MAX_TEXTS_PER_LINK: Final = 3  # of a page
MAX_URL_CHARACTERS: Final = 500  # of the linked page; keeps the report small
MAX_NODES_PER_LINK: Final = 50  # a link may contain the whole page
_WITHOUT_TEXT: Final = frozenset({"script", "style", "noscript", "template"})


def anchors_of(
    links: Iterable[tuple[LexborNode, str | None]], urls: Mapping[str, str]
) -> list[Anchor]:
    """Return the texts of links, each text of a link once; `urls` has the canonical URL of each href."""
    anchors: dict[Anchor, None] = {}
    counts: Counter[str] = Counter()
    for node, href in links:
        url = urls.get(without_fragment(href)) if href else None
        if url is None or len(url) > MAX_URL_CHARACTERS or counts[url] == MAX_TEXTS_PER_LINK:
            continue
        if not (text := link_text(node)):
            continue
        anchor = Anchor(url, text)
        if anchor not in anchors:
            anchors[anchor] = None
            counts[url] += 1
            if len(anchors) == MAX_ANCHORS:
                break
    return list(anchors)


def link_text(node: LexborNode) -> str:
    """Return the text of a link, or else the alternative text of its images; empty if it has neither."""
    child = node.first_child
    if child is None:
        return clean_anchor(node.attrs.get("alt") or "")  # of an area
    if child.next is None and child.is_text_node:  # most links
        return clean_anchor(child.text_content or "")
    texts, images = [], []
    for part in islice(node.traverse(include_text=True), MAX_NODES_PER_LINK):
        if part.is_text_node:
            if part.parent is None or part.parent.tag not in _WITHOUT_TEXT:
                texts.append(part.text_content or "")
        elif part.tag == "img":
            images.append(part.attrs.get("alt") or "")
    return clean_anchor(" ".join(texts)) or clean_anchor(" ".join(images))
