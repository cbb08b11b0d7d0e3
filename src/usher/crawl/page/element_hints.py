"""Guesses from the tag, class, id and role of an element whether its text is content or boilerplate."""

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

_CACHE_SIZE: Final = 4_096
_MAX_ATTRIBUTE_CHARACTERS: Final = 300  # that are read of a tag


class Hint(IntEnum):
    """What the author's names say about an element."""

    BOILERPLATE = -2  # certainly
    ASIDE = -1  # probably no content
    NONE = 0
    CONTENT = 1
    BODY = 2  # the text of the article


_NAMES: Final = re.compile(r'(?<![^ ])(class|id|role|itemprop)="([^"]*)')
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# Words that begin with one of these; names are often written together.
_CERTAIN: Final = (
    r"nav(?!y|aj)|menu|footer|cookie|consent|gdpr|ccpa|breadcrumb|copyright|contentinfo"
)
_BOILERPLATE_WORD: Final = re.compile(
    rf"{_CERTAIN}|skip|screenreader|paginat|pager|masthead|toolbar|advert|ads?$|adsby|dfp|outbrain|taboola|dialog|"
    r"alertdialog|modal|popup|search|login|signin|signup|newsletter|subscri|shar(?:e|ing)|social|sidebar|topbar|"
    r"complementary|widget|sponsor|promo|banner"
)
_CERTAIN_NAME: Final = re.compile(rf"(?<![a-z])(?:{_CERTAIN})", re.IGNORECASE)
_ASIDE_WORD: Final = re.compile(
    r"comment|disqus|respond|repl(?:y|ies)|relat|recommend|recirc|popular|trending|teaser|byline|author|bio$|dateline|"
    r"timestamp|meta$|tags$|tagcloud|taglist|rail$|aside|print|rating|feedback|poll$|quiz|donat|cta$|follow|slideshow|"
    r"gallery|carousel|credit|toc$|header"
)
_CONTENT_WORD: Final = re.compile(
    r"article|entry|post|story|content|text|copy|blog|body|hentry|prose|markdown|document"
)
# Of two words.
_BODY_NAME: Final = re.compile(
    r"(?:article|story|post|entry|main|rich|document|body)[_-]{0,2}(?:body|content|text|copy)",
    re.IGNORECASE,
)
_BY_TAG: Final = {
    **dict.fromkeys(("nav", "footer", "button", "dialog", "menu"), Hint.BOILERPLATE),
    **dict.fromkeys(("aside", "header", "form", "fieldset"), Hint.ASIDE),
    "article": Hint.CONTENT,
    "main": Hint.BODY,
}
_TAGS: Final = "article aside blockquote center details div dl figure form header main ol p section table td ul"
_NAMED_TAGS: Final = frozenset(_TAGS.split())


def hint_of(tag: str, attributes: str) -> Hint:
    """Return the hint of an element, such as `div` with `class="sidebar"`."""
    if attributes and tag in _NAMED_TAGS:
        return _hint(tag, attributes[:_MAX_ATTRIBUTE_CHARACTERS])
    return _BY_TAG.get(tag, Hint.NONE)


@lru_cache(_CACHE_SIZE)
def _hint(tag: str, attributes: str) -> Hint:
    by_tag = _BY_TAG.get(tag, Hint.NONE)
    names = " ".join(
        value
        for name, value in _NAMES.findall(attributes)
        # The id of a section is made of its heading.
        if name != "id" or not (tag == "section" or "sect" in attributes)
    )
    hints = set(map(_word_hint, _WORD.findall(names)))
    is_content = Hint.CONTENT in hints
    if is_content and _BODY_NAME.search(names):
        return Hint.BODY
    is_content = is_content or by_tag > Hint.NONE
    if Hint.BOILERPLATE in hints:
        is_certain = not is_content or _CERTAIN_NAME.search(names)
        return Hint.BOILERPLATE if is_certain else Hint.ASIDE
    if Hint.ASIDE in hints or by_tag is Hint.ASIDE:
        return Hint.ASIDE
    return max(by_tag, Hint.CONTENT) if is_content else by_tag


@lru_cache(_CACHE_SIZE)
def _word_hint(word: str) -> Hint:
    word = word.lower()
    if _BOILERPLATE_WORD.match(word):
        return Hint.BOILERPLATE
    if _ASIDE_WORD.match(word):
        return Hint.ASIDE
    return Hint.CONTENT if _CONTENT_WORD.match(word) else Hint.NONE
