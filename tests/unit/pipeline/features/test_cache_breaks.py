"""What a request forwarded is digested once: of an agent's step, what is new of it (guarantees §4 I7, §6.11)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.core.config.settings import Settings
from gateway.core.types.chat import KnownMessages, ModelFacts
from gateway.core.types.conversation import MessageCache
from gateway.core.types.prompt_digests import PromptDigests
from gateway.pipeline.features.cache_breaks import _prompt_digests
from tests.support.answers import Json, assistant, system, tool_call, tool_result, user
from tests.support.in_process import InProcess

RESULT = "\n".join(f"{number}: a line of a result" for number in range(40))
USAGE = {"prompt_tokens": 9000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8000}}


def step(number: int) -> list[Json]:
    call = tool_call(f"call_{number}", "read", f'{{"at":{number}}}')
    return [assistant(None, tool_calls=[call]), tool_result(call["id"], f"{number} {RESULT}")]


@pytest.mark.parametrize("store", [True, False])
async def test_a_step_digests_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: bool) -> None:
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{tmp_path / 'x.db'}"}})
    made = await InProcess(settings, {"m": ModelFacts("m")}, lambda _: said[0], remembers=True).prepare()
    made.upstream.usage_of = lambda _: USAGE
    digested: list[int] = []
    follow = PromptDigests.followed_by

    def counted(self: PromptDigests, messages: Sequence[Mapping[str, Any]]) -> PromptDigests:
        digested.append(len(messages))
        return follow(self, messages)

    monkeypatch.setattr(PromptDigests, "followed_by", counted)
    messages: list[Json] = [system("Be brief."), user("Read.")]
    steps = []
    try:
        for number in range(30):
            said = step(number)
            digested.clear()
            await made.send(json.dumps({"model": "m", "store": store, "messages": messages}).encode())
            steps.append(sum(digested))
            messages += said
    finally:
        await made.close()
    assert sum(steps[:10]) > 0
    assert max(steps[20:]) <= 4


def test_digests_go_on_only_from_the_messages_that_they_are_of() -> None:
    """Also where a client sent what no answer stands behind, and then something else in its place."""
    first, second, other = user("first"), user("second"), user("other")
    known, history = KnownMessages(), SimpleNamespace(cache=MessageCache())
    for sent, forwarded in (([first], [first]), ([first, second], [first, second]), ([], [other, second])):
        asked = SimpleNamespace(messages=sent, known=known)
        found = _prompt_digests(cast(Any, SimpleNamespace(asked=asked, history=history)), forwarded)
        assert found.each == PromptDigests().followed_by(forwarded).each
