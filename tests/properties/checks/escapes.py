"""I6: how content is kept from looking like the gateway's own delimiters and labels."""

import re

from tests.properties.checks.seen import hold

TAGS = r"(?=\s*/?\s*(?:context_data|artifact|citing|conversation_memory|pinned_message|turns_summary)\b)"
LINE = "(?:^|(?<=[\n\r\v\f\x85\u2028\u2029]))((?:[^\\S\n\r\v\f\x85\u2028\u2029]|\u200b)*)"
LABELS = r"(?=\s*(?:left out|summary of|extract of|extracts)\b)"
DELIMITER, DELIMITER_ESCAPED = (re.compile(f"{angle}{TAGS}", re.IGNORECASE) for angle in ("<", "&lt;"))
LABEL, LABEL_ESCAPED = (re.compile(rf"{LINE}{bracket}{LABELS}", re.IGNORECASE) for bracket in (r"\[", r"\\\["))


def escaped(text: str) -> str:
    """A text as it stands in an element of the gateway's, or below a label."""
    return LABEL.sub(r"\1\\[", DELIMITER.sub("&lt;", text))


def plain(text: str) -> str:
    """What a text was before it was escaped."""
    return LABEL_ESCAPED.sub(r"\1[", DELIMITER_ESCAPED.sub("<", text))


def check(text: str) -> None:
    """Raises Broken: something in a text that is shown as data is not escaped."""
    raw = DELIMITER.search(text) or LABEL.search(text)
    hold("I6", raw is None, f"not escaped: {text[raw.start() :][:40]!r}" if raw else "")
