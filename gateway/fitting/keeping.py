"""What a user said that holds beyond its turn: how the conversation began, and what is to be kept to."""

import re
from collections.abc import Iterable

from gateway.fitting.candidates import Candidate
from gateway.fitting.transcript import Said

RULE = re.compile(
    r"(?:^|[.!?:;,\n(–-]\s*)(?:please |and |but |also |so )*"
    r"(?:never|always|do not|don['’]t|you must|must not|make sure|from now on|under no circumstances|only ever|"
    r"keep to|stick to|remember to|avoid)\b|\bmust (?:be|not|never|always|only)\b|\brules?\b[^.!?\n]*:",
    re.IGNORECASE,
)
RULE_CHARS = 600
"""A longer passage with such words in it is a text of some kind, not a rule."""


def kept_words(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The beginning of the very first user message, then rules that the user gave, latest first."""
    of_user = [c for c in candidates if isinstance(c.of, Said) and c.of.speaker.startswith("user")]
    if not of_user:
        return []
    opening = min(of_user, key=lambda c: (c.message or 0, c.passage.start))
    rules = [c for c in of_user if c is not opening and _is_rule(c)]
    return [opening, *sorted(rules, key=lambda c: -c.order)]


def _is_rule(candidate: Candidate) -> bool:
    passage = candidate.passage
    return passage.end - passage.start <= RULE_CHARS and RULE.search(candidate.text) is not None
