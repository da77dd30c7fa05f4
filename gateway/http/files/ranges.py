"""One range of bytes of a content, as HTTP asks for it (RFC 9110, §14)."""

import re

RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})\Z", re.IGNORECASE)


class NotSatisfiable(Exception):
    """Nothing of the content is in the range."""


def range_of(asked: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte; None where the whole is to be sent: nothing, several ranges, or something else is asked for.

    Raises:
        NotSatisfiable: there is no such byte.
    """
    found = RANGE.match((asked or "").strip())
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(found[1]), int(found[2] or size - 1)) if found[1] else (max(0, size - int(found[2])), size - 1)
    if found[1] and found[2] and last < first:
        return None
    if first >= size:
        raise NotSatisfiable
    return first, min(last, size - 1)
