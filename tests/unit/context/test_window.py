"""The budget and the window: never over, contiguous, whole pairs (guarantee §4 I1-I3), in this process."""

import json
from collections.abc import Iterator

import pytest

from tests.support.answers import Json, function_tool, system, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of, tokens
from tests.support.local import LocalGateway
from tests.unit.making import assistant, tool

BUDGET = 4096 - 512
DOCUMENT = lamps(300)
DEFINED: list[Json] = [function_tool(f"f{i}", description=prose(i, 60), parameters={}) for i in range(30)]


@pytest.fixture
def small() -> Iterator[LocalGateway]:
    with LocalGateway() as made:
        yield made


def used(answer: Json) -> Json:
    found: Json = answer["response_metadata"]["context_utilization"]
    return found


@pytest.mark.parametrize("limit", [400, 700, 1000, 2000, 3584, 10_000])
def test_s4_i1_never_over_the_budget(small: LocalGateway, limit: int) -> None:
    """budget = min(model's maximum input, window - reserved output, max_input_tokens), by exact count."""
    answer = small.chat(
        system(prose(2, 30)),
        user("Who is the keeper of lamp 5?"),
        attachments=[{"content": DOCUMENT}],
        tools=DEFINED[:1],
        context={"max_input_tokens": limit},
        store=False,
    )
    budget = min(limit, BUDGET)
    assert used(answer)["budget_tokens"] == budget
    assert prompt_tokens(small.last.body) <= used(answer)["tokens_used"] <= budget
    assert used(answer)["tokens_used"] >= 0.8 * budget, "and it is made use of"
    assert keeper(5) in text_of(small.last.body)
    assert sum(used(answer)["breakdown"].values()) == used(answer)["tokens_used"]
    assert abs(used(answer)["utilization"] - used(answer)["tokens_used"] / budget) < 0.001
    assert "context_window_above_80_percent" in used(answer)["warnings"] or used(answer)["utilization"] <= 0.8


def test_s4_i1_the_answers_room_is_reserved(small: LocalGateway) -> None:
    """What `max_tokens` reserves is not for the prompt."""
    question = user("Who is the keeper of lamp 5?")
    answer = small.chat(question, attachments=[{"content": DOCUMENT}], max_tokens=2096)
    assert used(answer)["budget_tokens"] == 2000
    assert prompt_tokens(small.last.body) <= 2000


def test_s4_i1_tools_count(small: LocalGateway) -> None:
    """Prompt, tools and schema fit the budget together."""
    answer = small.chat(user("keeper of lamp 5?"), tools=DEFINED, attachments=[{"content": DOCUMENT}])
    assert small.last.body["tools"] == DEFINED
    assert prompt_tokens(small.last.body) <= BUDGET
    assert used(answer)["breakdown"]["tools"] >= sum(tokens(each["function"]["description"]) for each in DEFINED)


@pytest.mark.parametrize("resend", [False, True])
def test_s4_i2_i3_long_conversations(small: LocalGateway, resend: bool) -> None:
    """Twenty-four turns, some with tool steps: always one unbroken run that ends with the current, pairs whole."""
    said: list[Json] = [system("Be brief.")]
    body: Json = {}
    tools = [function_tool("f", parameters={"type": "object"})]
    limit: Json = {"context": {"max_input_tokens": 1200}, "tools": tools}
    for number in range(24):
        turn: list[Json] = [user(f"question {number} {prose(number, 10 + 37 * number % 90)}")]
        if number % 3 == 0:
            names = [f"c{number}{each}" for each in "ab"]
            turn.append(assistant(None, *names, name="f", arguments=json.dumps({"n": number})))
            turn += [tool(name, prose(number, 50)) for name in names]
        sent = [*said, *turn]
        if not resend:
            sent = turn[2:] or turn
            if len(turn) > 1:
                first = [*said, turn[0]] if number == 0 else turn[:1]
                answer = small.chat(*first, reply=turn[1], **body, **limit)
                body = {"conversation": answer["conversation"]["id"]}
        answer = small.chat(*sent, reply=f"answer {number}", **body, **limit)
        body = {"conversation": answer["conversation"]["id"]}
        said += [*turn, assistant(f"answer {number}")]
        messages = small.last.body["messages"]
        assert prompt_tokens(small.last.body) <= 1200
        assert messages[0] == said[0]
        assert messages[1]["role"] == "user", "the run begins with a whole turn"
        assert messages[-len(turn)]["content"].endswith(turn[0]["content"])
        expected = said[1:-1][-(len(messages) - 1) :]
        shape = [(m["role"], m.get("tool_call_id")) for m in messages[1:]]
        assert shape == [(m["role"], m.get("tool_call_id")) for m in expected]
        questions = ([m["content"] for m in run if m["role"] == "user"] for run in (messages[1:], expected))
        assert all(got.endswith(wanted) for got, wanted in zip(*questions, strict=True))
        if used(answer)["messages_excluded"] == 0:
            assert messages == said[:-1]
    assert len(small.last.body["messages"]) < len(said) / 2
