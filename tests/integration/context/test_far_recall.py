"""What is too old to be read for the window is recalled where a question needs it (guarantee §4 I6)."""

from pathlib import Path
from typing import Any

import pytest

from gateway.core import jsons
from tests.support.answers import Json, chat, user
from tests.support.documents import prompt_tokens, prose, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.marks import some_or_all
from tests.support.mock_upstream import MockUpstream

BUDGET = 4000
TURNS = 150
FACT = "By the way, the cellar's padlock opens with 7741-GROUSE."
QUESTION = "What does the padlock of the cellar open with?"
PORT = "hydrant-9 listens on port 48613"


@pytest.fixture
def limited(start_gateway: GatewayFactory, storage_url: str) -> GatewayProcess:
    """A gateway whose requests have a small budget, on each kind of storage."""
    return start_gateway({"storage": {"url": storage_url}, "context": {"max_input_tokens": BUDGET}})


@pytest.fixture
def long_talk(limited: GatewayProcess, upstream: MockUpstream) -> str:
    """The id of a conversation of 150 turns: a fact in the second, some long tool results, one fact in the first of
    these."""
    conversation = str(limited.post("/conversations", json={}).json()["id"])
    add_items(limited, conversation, items())
    return conversation


def items() -> list[Json]:
    found: list[Json] = []
    for turn in range(1, TURNS + 1):
        asked = f"Question {turn}. {FACT if turn == 2 else ''} {prose(turn, 45)}"
        found.append({"type": "message", "role": "user", "content": asked})
        if turn in (5, 40, 80, 120):
            call = f"call_{turn}"
            found.append({"type": "function_call", "call_id": call, "name": "scan", "arguments": f'{{"net": {turn}}}'})
            text = prose(1000 + turn, 3000)
            middle = len(text) // 2
            output = text[:middle] + (f" {PORT}. " if turn == 5 else " ") + text[middle:]
            found.append({"type": "function_call_output", "call_id": call, "output": output})
        found.append({"type": "message", "role": "assistant", "content": f"Answer {turn}. {prose(500 + turn, 8)}"})
    return found


def add_items(gateway: GatewayProcess, conversation: str, new: list[Json]) -> None:
    for start in range(0, len(new), 20):
        answer = gateway.post(f"/conversations/{conversation}/items", json={"items": new[start : start + 20]})
        assert answer.status_code == 200, answer.text


def ask(gateway: GatewayProcess, conversation: str, question: str, **more: Any) -> Json:
    return chat(gateway, user(question), model="gpt-4o", conversation=conversation, **more)


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
def test_s4_i6_a_fact_of_the_second_of_150_turns(
    limited: GatewayProcess, upstream: MockUpstream, long_talk: str, store: bool
) -> None:
    answer = ask(limited, long_talk, QUESTION, store=store)
    asked = upstream.last.body["messages"][-1]["content"]
    assert "[2 user]" in asked
    assert FACT in asked
    assert asked.endswith(QUESTION)
    assert prompt_tokens(upstream.last.body) <= BUDGET
    used = answer["response_metadata"]["context_utilization"]
    assert used["tokens_used"] <= BUDGET
    assert any(record["source"].startswith("turns:1-") for record in used["artifacts_processed"])


def test_s4_i6_a_passage_of_a_tool_result_of_the_fifth_turn(
    limited: GatewayProcess, upstream: MockUpstream, long_talk: str
) -> None:
    answer = ask(limited, long_talk, "On which port does hydrant-9 listen?")
    asked = upstream.last.body["messages"][-1]["content"]
    assert PORT in asked
    records = answer["response_metadata"]["context_utilization"]["artifacts_processed"]
    (record,) = [r for r in records if r["source"] == "history:msg_10:scan" and r["strategy"] == "rag_extract"]
    assert record["artifact_id"] in asked
    assert record["processed_size_chars"] < record["original_size_chars"]
    assert prompt_tokens(upstream.last.body) <= BUDGET


def test_s4_i6_what_was_recalled_stays_and_further_turns_recall_again(
    limited: GatewayProcess, upstream: MockUpstream, long_talk: str
) -> None:
    """The window is frozen (I7); a new question has the whole conversation searched once more."""
    ask(limited, long_talk, "How are you today?")
    first = upstream.last.body["messages"]
    ask(limited, long_talk, QUESTION)
    second = upstream.last.body["messages"]
    assert second[: len(first)] == first
    assert FACT in second[-1]["content"]
    assert "[2 user]" in second[-1]["content"]


def test_s4_i6_what_was_deleted_is_never_recalled(
    limited: GatewayProcess, upstream: MockUpstream, long_talk: str
) -> None:
    """Neither the item itself, nor out of the block of a turn that had recalled it."""
    ask(limited, long_talk, QUESTION)
    assert FACT in text_of(upstream.last.body)
    page = limited.get(f"/conversations/{long_talk}/items", params={"order": "asc", "limit": 4}).json()["data"]
    (fact,) = [item for item in page if FACT in jsons.dumps_stored(item)]
    assert limited.delete(f"/conversations/{long_talk}/items/{fact['id']}").status_code == 200
    ask(limited, long_talk, f"Once more: {QUESTION}")
    assert FACT not in text_of(upstream.last.body)
    assert "7741" not in text_of(upstream.last.body)


HANDBOOK = (Path(__file__).parents[3] / "deploy" / "demo" / "handbook.md").read_text()


@pytest.mark.parametrize("budget", some_or_all((1000, 1200, 1300, 1500, 1600, 2000), (1000, 1300, 1600)))
def test_s4_a_follow_up_is_shown_what_it_asks_about_in_small_windows_too(
    start_gateway: GatewayFactory, upstream: MockUpstream, budget: int
) -> None:
    """§4 I6: beside what stands, in part where that holds it, or by a pass; never nothing because a label was guessed
    too short."""
    params = {"model": "openai/tiny", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    info = {"max_input_tokens": 8192, "max_output_tokens": 400, "token_margin": 1.3}
    gateway = start_gateway({"model_list": [{"model_name": "tiny", "litellm_params": params, "model_info": info}]})
    small = {"model": "tiny", "context": {"max_input_tokens": budget}}
    asked = [user("How long do the batteries carry the light alone?")]
    upstream.reply(text="For nine hours.")
    first = chat(gateway, **small, messages=asked, attachments=[{"title": "Handbook", "content": HANDBOOK}])
    assert "alone for nine hours" in text_of(upstream.last.body)
    call_sign = [user("What is the radio call sign of the station?")]
    chat(gateway, **small, messages=call_sign, conversation=first["conversation"]["id"])
    assert "Copper Heron" in text_of(upstream.last.body)
