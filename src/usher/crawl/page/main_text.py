"""Selects the main text of a page: the blocks of its article, without menus, banners and comments.

Paragraphs give points to the elements around them, as in Mozilla's Readability. The element with most points contains
the main text. Its parts that consist of links, or whose names say that they are something else, do not belong to it. A
page without such an element (a home page, a list, a short page) has all its text but menus and footers.
"""

from collections.abc import Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from usher.crawl.page.blocks import HEADINGS, PARAGRAPHS, Block, Element, PageBlocks
from usher.crawl.page.element_hints import Hint, hint_of

MIN_MAIN_CHARACTERS: Final = 250
MIN_MAIN_SHARE: Final = 0.6  # of the text that is neither a link nor boilerplate
MAX_HINT_SHARE: Final = 0.5  # of the page's text; an element with more is not what its name says
MIN_PARAGRAPH_CHARACTERS: Final = 25
MAX_LINK_SHARE: Final = 0.5
MIN_SIBLING_POINTS: Final = 10.0
MIN_SIBLING_SHARE: Final = 0.2  # of the points of the best element
MIN_SIBLING_CHARACTERS: Final = 80  # of a paragraph beside the best element
MAX_SIBLING_LINK_SHARE: Final = 0.25
RIVALS: Final = 5  # best elements that are compared
MIN_RIVALS: Final = 3  # with an element in common, which is then the main one
MIN_RIVAL_SHARE: Final = 0.5  # of the points of the best element

MAX_MENU_SHARE: Final = 0.35  # of the main text

MAX_NOTICE_CHARACTERS: Final = 300

_COOKIE_PHRASES: Final = ("website", "this site", "our site", "we use")
_LEVEL_DIVISORS: Final = (1, 2, 6, 9, 12)
_ROOTS: Final = frozenset({"html", "body"})
_TAG_POINTS: Final = {
    **dict.fromkeys(("pre", "td", "blockquote"), 3),
    **dict.fromkeys(("address", "ol", "ul", "dl", "dd", "dt", "li", "form"), -3),
    **dict.fromkeys(("th", *HEADINGS), -5),
    "div": 5,
    "article": 10,
    "main": 5,
}
_HINT_POINTS: Final = {Hint.ASIDE: -25, Hint.CONTENT: 25, Hint.BODY: 40}


class SelectedText(NamedTuple):
    """The blocks of the main text, and other text that may be content; menus and footers are in neither."""

    main: list[Block]
    rest: list[Block]


def select_text(page: PageBlocks, title: str = "") -> SelectedText:
    """Return the main text without the heading that is the title."""
    hints = _effective_hints(page.elements)
    content = [
        block
        for block in page.blocks
        if hints[block.element.number] is not Hint.BOILERPLATE and not _is_notice(block.text)
    ]
    free = [block for block in content if hints[block.element.number] is Hint.NONE]
    main, others = _main_blocks(page, free), content
    if _length(main) < MIN_MAIN_CHARACTERS:
        main = content
        if _length(main) < MIN_MAIN_CHARACTERS:
            others = page.blocks  # what looks like a menu may be the text
            main = main or others
    main = _without_leading_links(main)
    chosen = {id(block) for block in main}
    rest = [block for block in others if id(block) not in chosen]
    return SelectedText([block for block in main if not _is_title(block, title)], rest)


def join_blocks(blocks: Sequence[Block]) -> str:
    return "".join([block.separator + block.text for block in blocks]).strip()


def _without_leading_links(blocks: list[Block]) -> list[Block]:
    """Return the blocks without those before the first paragraph, if most of these are links: they are a menu."""
    start = next((at for at, block in enumerate(blocks) if _is_paragraph(block)), 0)
    leading = [block for block in blocks[:start] if block.element.tag not in HEADINGS]
    links = sum(block.link_chars == len(block.text) for block in leading)
    if 2 * links <= len(leading) or _length(leading) > MAX_MENU_SHARE * _length(blocks):
        return blocks
    menu = {id(block) for block in leading}
    return [block for block in blocks if id(block) not in menu]


def _is_paragraph(block: Block) -> bool:
    """Return whether a block has enough text that is not a link, or is the beginning of a section."""
    return len(block.text) - block.link_chars >= MIN_SIBLING_CHARACTERS or bool(block.anchor)


def _effective_hints(elements: Sequence[Element]) -> list[Hint]:
    """Return for each element whether it, or an element around it, is boilerplate or aside."""
    max_prose = MAX_HINT_SHARE * elements[0].prose
    hints: list[Hint] = []
    in_article: list[bool] = []
    for element in elements:
        parent = element.parent
        inherited = hints[parent.number] if parent else Hint.NONE
        if inherited is not Hint.BOILERPLATE and element.chars:
            element.hint = hint_of(element.tag, element.attributes)
        nested = bool(parent and in_article[parent.number])
        is_article = element.tag == "article"
        # An article in an article is a comment or a teaser.
        own = (Hint.ASIDE if nested else Hint.NONE) if is_article else element.hint
        hints.append(own if own < inherited and element.prose <= max_prose else inherited)
        in_article.append(nested or is_article)
    return hints


def _main_blocks(page: PageBlocks, free: Sequence[Block]) -> list[Block]:
    """Return the blocks of the element with most points; of a page in pieces, all that are not in lists of links."""
    inside = [page.in_pieces] * len(page.elements)
    best = None if page.in_pieces else _best_element(page, free)
    for element in page.elements:
        parent = element.parent
        if parent is not None and element is not best and inside[parent.number]:
            inside[element.number] = not _is_link_list(element)
        elif best is not None:
            inside[element.number] = element is best or _belongs(element, best)
    return [block for block in free if inside[block.element.number]]


def _best_element(page: PageBlocks, free: Sequence[Block]) -> Element | None:
    _give_points(free)
    for element in page.elements:
        element.points *= 1 - element.link_share
    rivals = nlargest(RIVALS, page.elements, key=lambda element: element.points)
    best = rivals[0]
    if best.points <= 0:
        return None
    rivals = [other for other in rivals[1:] if other.points >= MIN_RIVAL_SHARE * best.points]
    return _widen(page, free, _climb(_common_element(best, rivals)))


def _widen(page: PageBlocks, free: Sequence[Block], best: Element) -> Element:
    """Return the smallest element around the best one that contains most of the page's text."""
    prose = [0] * len(page.elements)
    for block in free:
        prose[block.element.number] += len(block.text) - block.link_chars
    for element in reversed(page.elements):
        if element.parent is not None:
            prose[element.parent.number] += prose[element.number]
    for element in best.ancestors():
        if prose[element.number] >= MIN_MAIN_SHARE * prose[0]:
            return element
    return best


def _give_points(blocks: Sequence[Block]) -> None:
    """Give the points of each paragraph to the elements around it."""
    for block in blocks:
        prose = len(block.text) - block.link_chars
        if prose < MIN_PARAGRAPH_CHARACTERS:
            continue
        points = 1 + block.text.count(",") + min(prose // 100, 3)
        element: Element | None = block.element
        if element and element.tag in PARAGRAPHS:
            element = element.parent
        for divisor in _LEVEL_DIVISORS:
            if element is None:
                break
            if not element.points:
                element.points = _TAG_POINTS.get(element.tag, 0) + _HINT_POINTS.get(element.hint, 0)
            element.points += points / divisor
            element = element.parent


def _common_element(best: Element, rivals: Sequence[Element]) -> Element:
    """Return the element around the best one and enough of its rivals, if there is one; else the best one."""
    if len(rivals) < MIN_RIVALS:
        return best
    around = [{element.number for element in rival.ancestors()} for rival in rivals]
    for element in best.ancestors():
        if element.tag in _ROOTS:
            break
        if element is not best and sum(element.number in its for its in around) >= MIN_RIVALS:
            return element
    return best


def _climb(best: Element) -> Element:
    """Return an element around the best one that has still more points, or else the best one."""
    last, least = best.points, best.points / 3
    for element in best.ancestors():
        if element.tag in _ROOTS or element.points < least:
            break
        if element.points > last:
            return element
        last = element.points
    return best


def _belongs(element: Element, best: Element) -> bool:
    """Return whether an element is beside the best one and a part of the article."""
    if element.parent is not best.parent:
        return False
    is_alike = element.tag == best.tag and element.classes == best.classes
    if is_alike or (element.tag == "p" and element.chars > MIN_SIBLING_CHARACTERS):
        return element.link_share < MAX_SIBLING_LINK_SHARE
    return element.points >= max(MIN_SIBLING_POINTS, MIN_SIBLING_SHARE * best.points)


def _is_link_list(element: Element) -> bool:
    return element.tag not in PARAGRAPHS and element.link_share > MAX_LINK_SHARE


def _is_title(block: Block, title: str) -> bool:
    """Return whether a block is the heading that the title repeats, perhaps beside the name of the site."""
    if block.element.tag not in HEADINGS:
        return False
    heading, title = block.text.casefold(), title.casefold()
    return title.startswith(heading) or title.endswith(heading)


def _is_notice(text: str) -> bool:
    """Return whether a text is one that many sites have beside their content; only English ones are recognized."""
    if len(text) > MAX_NOTICE_CHARACTERS:
        return False
    lower = text.lower()
    if lower.startswith(("copyright", "©")) or "all rights reserved" in lower:
        return True
    has_cookies = "cookies" in lower and any(phrase in lower for phrase in _COOKIE_PHRASES)
    return has_cookies or lower in {"advertisement", "advertisements"}


def _length(blocks: Sequence[Block]) -> int:
    return sum(len(block.text) for block in blocks)
