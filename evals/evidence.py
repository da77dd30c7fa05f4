"""Whether evidence stands in what was forwarded, however it is spaced, cased and escaped."""

import base64
import re
import unicodedata
from functools import lru_cache
from typing import Any

Json = dict[str, Any]
WORD = re.compile(r"\w+")
LONG = 15
"""Words from which a text counts as there if nearly all of it stands in one place: an edited quotation."""
NEARLY = 0.85
NEAR = 300


def said(message: Json) -> str:
    """All that a message says, its calls included."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    calls = [str((call.get("function") or {}).get("arguments", "")) for call in message.get("tool_calls") or ()]
    return "\n".join([*map(_of_part, parts), *calls])


@lru_cache(20_000)
def plain(text: str) -> str:
    """Its words, lower case, one blank between them and around them."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).lower().replace("_", " "))
    return f" {' '.join(words)} "


def holds(evidence: Json, bodies: list[str]) -> bool:
    """`bodies`: what was forwarded, as `plain` writes it."""
    if "text" in evidence:
        wanted = plain(evidence["text"])
        return any(_has_text(wanted, body) for body in bodies)
    key, value = plain(evidence["key"]), plain(str(evidence["val"]))
    column = plain(evidence["field"]) if evidence.get("field") else ""
    within = evidence.get("within", NEAR)
    return any((not column or column in body) and _near(key, value, body, within) for body in bodies)


def _has_text(wanted: str, body: str) -> bool:
    if wanted in body:
        return True
    if not wanted.isascii() and wanted.replace(" ", "") in body.replace(" ", ""):
        return True  # scripts without blanks between words
    return _nearly(wanted.split(), body)


def _nearly(wanted: list[str], body: str) -> bool:
    """Whether nearly all triples of words stand within one stretch of the body."""
    if len(wanted) < LONG:
        return False
    triples = {tuple(wanted[i : i + 3]) for i in range(len(wanted) - 2)}
    words = body.split()
    places = [i for i in range(len(words) - 2) if tuple(words[i : i + 3]) in triples]
    width = 3 * len(wanted)
    for start in places[:: max(1, len(places) // 200)]:
        here = {tuple(words[i : i + 3]) for i in places if start <= i < start + width}
        if len(here) >= NEARLY * len(triples):
            return True
    return False


def _near(key: str, value: str, body: str, within: int) -> bool:
    at = body.find(key)
    while at >= 0:
        if value in body[max(0, at - within) : at + len(key) + within]:
            return True
        at = body.find(key, at + 1)
    return False


def _of_part(part: Json) -> str:
    if part.get("type") == "file":
        data = str((part.get("file") or {}).get("file_data") or "").rpartition(",")[2]
        try:
            return base64.b64decode(data).decode("utf-8", "replace")
        except ValueError:
            return ""
    return str(part.get("text") or "")
