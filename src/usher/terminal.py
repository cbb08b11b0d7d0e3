r"""Makes text safe to print: control characters and invisible format characters become `\uXXXX`.

Text from web pages, feeds, jobs and other machines is not trusted: a terminal executes escape sequences, reorders text
at bidi controls and hides zero-width characters. The escapes are those of JSON, so printed JSON keeps its meaning.
"""

import re
from typing import Final

# C0 without tab and newline, DEL and C1; Arabic letter mark; zero-width space, left-to-right and right-to-left marks;
# line and paragraph separators, bidi embeddings and overrides; word joiner, invisible operators, bidi isolates,
# deprecated format characters; byte order mark; interlinear annotations; tags; halves of surrogate pairs.
# Joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji need them.
UNSAFE_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_ASTRAL: Final = 0x10000


def escape_controls(text: str) -> str:
    """Return the text without characters that a terminal executes or hides; CRLF becomes a newline."""
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE_CHARACTERS.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < _ASTRAL:
        return f"\\u{code:04x}"
    high, low = divmod(code - _ASTRAL, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
