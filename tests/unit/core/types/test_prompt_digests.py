"""Digests of what was forwarded (guarantees §4 I7, §6.11)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.prompt_digests import BYTES_EACH, PromptDigests

MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
TEXT: dict[str, Any] = {"type": "text", "text": "a cache_control"}
CONTENTS = (None, "", "a cache_control", [TEXT], [{**TEXT, **MARK}], [TEXT, TEXT], [TEXT, {**TEXT, **MARK}])
MESSAGES = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    st.sampled_from(CONTENTS),
    st.sampled_from([{}, MARK, {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}", **MARK}}]}]),
)


def facts(digests: PromptDigests) -> tuple[bytes, str, tuple[int, ...]]:
    return digests.each, digests.system, digests.marked


@given(st.lists(MESSAGES, max_size=8), st.integers(0, 8))
def test_digests_go_on_as_if_they_were_made_at_once(messages: list[dict[str, Any]], cut: int) -> None:
    whole, beginning = PromptDigests().followed_by(messages), PromptDigests().followed_by(messages[:cut])
    before = facts(beginning)
    assert facts(beginning.followed_by(messages[cut:])) == facts(whole)
    assert facts(beginning) == before
    assert whole.each[: len(beginning.each)] == beginning.each
    assert len(whole.each) == BYTES_EACH * len(messages)
    assert whole.marked == tuple(n for n, each in enumerate(messages) if "'cache_control':" in repr(each))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", [{"type": "text", "text": "a", **MARK}], True),
        ([TEXT, TEXT], [TEXT, {**TEXT, **MARK}], True),
        ("a", "b", False),
        ([TEXT, TEXT], [TEXT], False),
    ],
)
def test_marks_change_no_digest(one: Any, other: Any, same: bool) -> None:
    made = [PromptDigests().followed_by([{"role": "user", "content": each}]).each for each in (one, other)]
    assert (made[0] == made[1]) is same


def test_system_messages_count_until_another_comes() -> None:
    head = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    of_head = PromptDigests().followed_by(head)
    assert of_head.followed_by([{"role": "user", "content": "c"}, *head]).system == of_head.system
    assert of_head.system not in (PromptDigests().system, PromptDigests().followed_by(head[:1]).system)
