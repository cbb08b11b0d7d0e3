"""Small PDFs, written by hand so that tests know every byte."""

from collections.abc import Iterable

_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
_LOCK = b"<</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>>" % (b"41" * 32, b"42" * 32)


def paper(texts: Iterable[str], *, info: str = "", locked: bool = False) -> bytes:
    """A PDF with one page for each text."""
    streams = [f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode() if text else b"" for text in texts]
    first = 5
    kids = b" ".join(b"%d 0 R" % (first + 2 * number) for number in range(len(streams)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(streams)),
        _FONT,
        f"<<{info}>>".encode(),
    ]
    for number, stream in enumerate(streams):
        content = first + 2 * number + 1
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>>>>>" % content
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    if locked:
        objects.append(_LOCK)
    return assembled(objects, b"/Encrypt %d 0 R/ID[<41><41>]" % len(objects) if locked else b"")


def assembled(objects: list[bytes], more: bytes = b"") -> bytes:
    body, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%s endobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return (
        body
        + b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R/Info 4 0 R%s>>\nstartxref\n%d\n%%%%EOF"
        % (
            size,
            table,
            size,
            more,
            len(body),
        )
    )
