"""Questions of position: `the third entry`, `your first tool call`, `row 12`, `how does it begin`."""

import re
from dataclasses import dataclass

LAST = -1
WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ORDINAL = (
    r"(?:(?:the|very|your|my|our|its)\s+)*"
    r"(?P<ordinal>(?:second|third|next)[- ]to[- ]last|penultimate|" + "|".join(WORDS) + r"|\d{1,4}(?:st|nd|rd|th)"
    r"|last|final|latest|most recent)\b"
)
_FILLING = r"(?:\s+(?:single|data|full|complete|recorded|listed|returned))*"
ORDINAL_NOUN = re.compile(_ORDINAL + _FILLING + r"\s+(?P<nouns>\w+(?:\s+\w+)?)", re.I)
NOUN_NUMBER = re.compile(r"\b(?P<nouns>(?:tool )?\w+)\s+(?:number\s+|no\.?\s*|#\s*)?(?P<ordinal>\d{1,5})\b", re.I)
_NOUNS = """
call tool step output response command run invocation action toolcall
document attachment file page upload result search query request report
entry entries item items row rows record records line lines element elements object objects hit hits match matches
"""
_CALLS, _TEXTS, _RECORDS = _NOUNS.strip().splitlines()
CALLS, TEXTS = frozenset(_CALLS.split()), frozenset(_TEXTS.split())
RECORDS = frozenset(_RECORDS.split()) | {"result", "results", "paragraph", "section", "sentence"}
BEGIN = re.compile(r"\b(?:begins?|beginning|starts?\s+with|start|opens?\s+with|at the top|top of)\b", re.IGNORECASE)
END = re.compile(r"\b(?:ends?\s+with|ends?|at the bottom|bottom of|at the end|tail)\b", re.IGNORECASE)
LINES = frozenset(["line", "lines"])


@dataclass(frozen=True, slots=True)
class Position:
    """Which text and which record in it are meant, from 0 on, from the end if negative (-1: the last); None: not said.

    `noun` is the word by which the text was named (`grep`, `file`, `call`). `by_lines`: the record is a line. `edge`:
    it is where the text begins or ends, whatever stands there.
    """

    text: int | None = None
    record: int | None = None
    noun: str = ""
    by_lines: bool = False
    edge: bool = False


def position(question: str, tools: frozenset[str]) -> Position | None:
    """The position that a question asks for, None if it does not.

    Args:
        tools: words in the names of the texts' tools: `the second grep` is the second text of that tool.
    """
    text: tuple[int, str] | None = None
    record: tuple[int, str] | None = None
    edge = (0, "") if BEGIN.search(question) else (LAST, "") if END.search(question) else None
    for match in (*ORDINAL_NOUN.finditer(question), *NOUN_NUMBER.finditer(question)):
        at, nouns = _number(match["ordinal"].lower()), match["nouns"].lower().split()
        if at is None:
            continue
        whole = nouns[0] == "result" and (edge is not None or record)
        if nouns[0] in RECORDS and nouns[0] not in tools and not whole:
            record = record or (at, nouns[0])
        elif noun := next((noun for noun in nouns if _is_text(noun, tools)), None):
            text = text or (at, noun)
    if text is None and record is None:
        return None
    at_record, noun = record or edge or (None, "")
    return Position(
        text[0] if text else None,
        at_record,
        text[1] if text else "",
        noun in LINES,
        record is None and edge is not None,
    )


def _is_text(noun: str, tools: frozenset[str]) -> bool:
    single = noun.removesuffix("s")
    return bool({noun, single} & (CALLS | TEXTS)) or single in tools or noun in tools


def _number(ordinal: str) -> int | None:
    if ordinal in WORDS:
        return WORDS.index(ordinal)
    if ordinal[0].isdigit():
        number = int(re.sub(r"\D", "", ordinal))
        return number - 1 if number else None
    if ("last" in ordinal and ordinal != "last") or ordinal == "penultimate":
        return -3 if ordinal.startswith("third") else -2
    return LAST
