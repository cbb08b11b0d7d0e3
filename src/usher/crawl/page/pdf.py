"""Extracts the text of a PDF, page by page.

PDFium is written in C++: a hostile file may crash the process, so the crawler reads PDFs in a process of their own
(`pdf_process`). Only one thread of a process may use PDFium at a time.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pypdfium2

MAX_BYTES: Final = 50_000_000
MAX_PAGES: Final = 500
MAX_TEXT_CHARACTERS: Final = 1_000_000
MAX_TITLE_LENGTH: Final = 300

_DATE: Final = re.compile(
    r"D?:?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:([+-])(\d\d)'?(\d\d)?)?"
)
_DATE_DEFAULTS: Final = (0, 1, 1, 0, 0, 0)
_ENCRYPTED: Final = "Incorrect password"


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of each page, the metadata, and what was left out and why."""

    pages: list[str] = field(default_factory=list)
    title: str = ""
    published: datetime | None = None
    modified: datetime | None = None
    problem: str = ""


def read_pdf(body: bytes) -> PdfText:
    if len(body) > MAX_BYTES:
        return PdfText(problem=f"it is larger than {MAX_BYTES:,} bytes")
    try:
        document = pypdfium2.PdfDocument(body)
    except (pypdfium2.PdfiumError, ValueError) as error:
        if _ENCRYPTED in str(error):
            return PdfText(problem="it is encrypted")
        return PdfText(problem="it is not a readable PDF")
    try:
        return _read(document)
    except MemoryError:
        return PdfText(problem="it could not be read: too large")
    except (pypdfium2.PdfiumError, ValueError) as error:
        return PdfText(problem=f"it could not be read ({type(error).__name__})")
    finally:
        document.close()


def _read(document: Any) -> PdfText:  # noqa: ANN401 - PDFium's Python has no types
    metadata = document.get_metadata_dict(skip_empty=True)
    count, left, problems = len(document), MAX_TEXT_CHARACTERS, []
    if count > MAX_PAGES:
        problems.append(f"only its first {MAX_PAGES} of {count} pages were read")
    pages: list[str] = []
    unreadable = 0
    for number in range(min(count, MAX_PAGES)):
        text = _page(document, number)
        unreadable += text is None
        pages.append((text or "")[:left])
        left -= len(text or "")
        if left <= 0:
            problems.append(
                f"only the first {MAX_TEXT_CHARACTERS:,} characters of its text were kept"
            )
            break
    if unreadable:
        problems.append(f"{unreadable} of its pages cannot be read")
    return PdfText(
        pages,
        " ".join(metadata.get("Title", "")[: MAX_TITLE_LENGTH * 2].replace("\0", " ").split())[
            :MAX_TITLE_LENGTH
        ],
        parse_date(metadata.get("CreationDate", "")),
        parse_date(metadata.get("ModDate", "")),
        "; ".join(problems),
    )


def _page(document: Any, number: int) -> str | None:  # noqa: ANN401
    try:
        page = document[number]
        try:
            text = page.get_textpage().get_text_bounded(errors="replace")
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        return None
    return str(text).replace("\r\n", "\n").replace("\0", " ").replace("\ufffe", "-\n").strip()


def parse_date(text: str) -> datetime | None:
    """Parse a date of PDF: `D:20240131120000+01'00'`; None if it is invalid."""
    match = _DATE.match(text.strip())
    if not match:
        return None
    year, month, day, hour, minute, second = (
        int(text) if text else default
        for text, default in zip(match.groups()[:6], _DATE_DEFAULTS, strict=True)
    )
    sign, hours, minutes = match.groups()[6:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
