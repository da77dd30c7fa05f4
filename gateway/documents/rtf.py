"""The text of RTF files."""

import codecs
import re

from striprtf.striprtf import rtf_to_text

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument
from gateway.documents.packages import reading

RTF_START = re.compile(rb"\s{0,100}\{\\rtf")
CODE_PAGE = re.compile(rb"\\ansicpg(\d{1,5})")
RTF_PICTURE = re.compile(rb"\\pict\b[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}")
"""A picture, to the end of its group. The parser would examine its bytes one by one, and they are no text."""
RTF_LEFT_OUT = (
    (re.compile(rb"\\footnote\b"), LeftOut("Its footnotes were not read.")),
    (re.compile(rb"\\annotation\b"), LeftOut("Its comments were not read.")),
    (re.compile(rb"\{\\(?:header|footer)[lrf]?\b"), LeftOut("Its headers and footers were not read.")),
    (re.compile(rb"\\objdata\b"), LeftOut("It holds embedded files, not read.")),
    (re.compile(rb"(?<![}\s\0])[\s\0]*\Z"), LeftOut("The RTF is cut off; what could be found of it was read.")),
)
BLANK = re.compile(r"\n{3,}")


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads paragraphs; cells of table rows between `|`. Raises UnreadableDocument: it is no RTF."""
    if not RTF_START.match(raw):
        raise UnreadableDocument("it is no readable RTF")
    with reading("RTF"):
        encoding = _encoding(raw)
        plain = RTF_PICTURE.sub(rb"\\pict}", raw).decode(encoding, "replace")
        text = str(rtf_to_text(plain, encoding=encoding, errors="replace"))  # type: ignore[no-untyped-call]
        # Characters beyond the 65,536 of UTF-16 come as two halves.
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        notes = tuple(note for sign, note in RTF_LEFT_OUT if sign.search(raw))
        lines = "\n".join(line.rstrip() for line in whole.replace("\0", "").split("\n"))
        return Reading(places.plain_lines(BLANK.sub("\n\n", lines.replace("\n|", "|")).strip()), notes)


def _encoding(raw: bytes) -> str:
    found = CODE_PAGE.search(raw[:4096])
    name = f"cp{int(found[1])}" if found else "cp1252"
    try:
        return "utf-8" if name == "cp65001" else codecs.lookup(name).name
    except LookupError:
        return "cp1252"
