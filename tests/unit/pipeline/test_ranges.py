"""Forms of messages as ranges of what is sent again (ADR 12)."""

import json
from typing import Any

import pytest

from gateway.context.artifacts.lossless_compaction import compact
from gateway.core.types.conversation import Form
from gateway.pipeline.ranges import MessageTexts, RangeFinder, UnencodableForm, decoded_form, encoded_parts

LINES = "\n".join(f"the lantern {n} glows at {n * 7} fathoms" for n in range(40))
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": LINES}
QUESTION: dict[str, Any] = {"role": "user", "content": "Which lantern?"}
BODIES = [QUESTION, RESULT]
LABEL = (
    '[Extract of tool result "lantern", id art_0123456789abcdef, from step_1:lantern: '
    "80 of 1,300 characters; […] marks what was left out.]\n"
)


def again(form: dict[str, Any], index: int, now: list[dict[str, Any]] | None = None) -> Form:
    """The form as it is told, put together of the messages as they are now."""
    ids: list[str] = []
    finder = RangeFinder(MessageTexts(BODIES, compact), len(BODIES), ids)
    parts = encoded_parts(form, BODIES[index], finder, index)
    assert "fathoms" not in str(parts)
    return decoded_form(parts, (now or BODIES)[index], MessageTexts(now or BODIES, compact), ids)


@pytest.mark.parametrize(
    ("index", "content"),
    [
        (1, f"{LABEL}[…]\n{LINES[200:290]}\n[…]"),
        (1, LINES[:77]),
        (0, f"{LABEL}{LINES[:300].replace('<', '&lt;')}\n\nWhich lantern?"),
        (0, [{"type": "text", "text": LINES[40:90]}, {"type": "text", "text": "Which lantern?"}]),
    ],
)
def test_a_form_comes_back_as_it_was(index: int, content: Any) -> None:
    form = {**BODIES[index], "content": content}
    assert again(form, index) == form


def test_a_range_does_not_cut_a_word_of_the_gateway_in_two() -> None:
    """The rest of it would be in no message."""
    bodies = [{"role": "user", "content": "227 more t"}, RESULT]
    form = {**RESULT, "content": "[Unchanged: the line above, 227 more times.]\n"}
    texts, ids = MessageTexts(bodies, compact), list[str]()
    parts = encoded_parts(form, RESULT, RangeFinder(texts, 2, ids), 1)
    assert decoded_form(parts, RESULT, texts, ids) == form


def test_what_nobody_sends_cannot_be_said() -> None:
    for form in ({**RESULT, "content": "a summary by somebody"}, {**RESULT, "name": "other"}):
        with pytest.raises(UnencodableForm):
            again(form, 1)


def test_an_extract_of_compacted_records_is_said_by_record_and_not_by_word() -> None:
    """Word by word, an extract of 16,000 tokens took seconds of each request, and a frame longer than itself."""
    records = [{"lantern": n, "name": f"the lantern {n} of the pier", "depths": [n * 7, n * 9]} for n in range(600)]
    spaced = {**RESULT, "content": json.dumps(records)}
    compacted = compact(spaced["content"]).replace("},{", "},\n{").splitlines()
    shown = "\n[…]\n".join(compacted[number].removesuffix(",") for number in range(0, 600, 3))
    form = {**RESULT, "content": f"{LABEL}{shown}"}
    texts, ids = MessageTexts([QUESTION, spaced], compact), list[str]()
    parts = encoded_parts(form, spaced, RangeFinder(texts, 2, ids), 1)
    assert decoded_form(parts, spaced, texts, ids) == form
    assert len(parts[0][1]) < 2 * 200 + 30


def test_a_form_follows_what_its_client_sends_now() -> None:
    """So that a digest tells that it is another; and has that client's breakpoint."""
    form = {**RESULT, "content": f"{LABEL}{LINES[:90]}"}
    mark = {"cache_control": {"type": "ephemeral"}}
    now = [QUESTION, {**RESULT, "content": [{"type": "text", "text": LINES, **mark}]}]
    assert again(form, 1, now) == {**RESULT, "content": [{"type": "text", "text": form["content"], **mark}]}
    assert again(form, 1, [QUESTION, {**RESULT, "content": LINES.upper()}]) != form
    with pytest.raises(ValueError, match="range"):
        again(form, 1, [QUESTION, {**RESULT, "content": "short"}])
