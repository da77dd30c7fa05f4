"""What is left of an answer that broke off: its whole sentences and lines."""

import re

LEAST_WORD = 3
"""Letters before a full stop that ends a sentence; fewer are mostly an abbreviation or an initial ("Dr. ", "J. ")."""
NEAR = 40
"""Characters around a full stop that are looked at."""
SOUGHT = 20_000
"""Characters at the end in which an end is sought: many times what a summarizer is asked for."""
END = re.compile(r"[.!?…]{1,9}[\"'»”’)\]*_`]{0,9}(?=\s|\Z)|[。！？｡]+[」』）”]{0,9}|\n")


def whole_part(text: str) -> str:
    """A text up to the end of its last whole sentence or line, trimmed; empty if nothing of it is whole.

    A full stop behind a figure or a short word ends a sentence only before a space and what a sentence begins with:
    at the very end it may be the first half of "3.14".
    """
    late = list(END.finditer(text, max(0, len(text) - SOUGHT)))
    ends = (match.end() for match in reversed(late) if _ends(text, match))
    return text[: next(ends, 0)].strip()


def _ends(text: str, match: re.Match[str]) -> bool:
    if match[0][0] != ".":
        return True
    following = text[match.end() : match.end() + NEAR].lstrip()[:1]
    words = text[max(0, match.start() - NEAR) : match.start()].split(" ")
    before = words[-1].lstrip("\"'«„“(*_`[")
    if before[-1:].isdigit():
        return bool(following) and not following.islower()
    return len(before) >= LEAST_WORD and not following.islower()
