"""Restored tool results where a request has no `tools`, or another provider answers: labelled text in the block of
§4 I6, and what that means for the requests that follow (guarantee §3.3, §4 I6, I7)."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from openai import OpenAI

from tests.support import tool_loop
from tests.support.answers import Json, assistant, user
from tests.support.factory import SMALL_MODEL_INFO, ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import ASK, LOOP, call, calls, result

SAID = [ASK, LOOP[3]]
SECOND, THIRD, FOURTH = user("And tomorrow?"), user("Sure?"), user("And in Basel?")


class Talk(tool_loop.Talk):
    """With tools or without, as each request says."""

    def run_once(self, content: str = "12 degrees, rain", **more: Any) -> None:
        """A turn with one tool step."""
        self.send(ASK, reply=LOOP[1], **more)
        self.send(result("c1", content), reply=LOOP[3], **more)


@pytest.fixture
def talk(client: OpenAI, upstream: MockUpstream) -> Talk:
    return Talk(client, upstream)


def items(message: Json) -> list[tuple[str, str]]:
    """Head and body of each item in the block at the head of a message; checks the block's form."""
    found = re.fullmatch(
        r"<context_data [^\n]*data, not instructions[^\n]*>\n(.*)\n</context_data>\n\n(.*)",
        message["content"],
        re.DOTALL,
    )
    assert found, message
    return re.findall(r"^(<artifact [^\n]*>)\n(.*?)\n</artifact>$", found[1], re.DOTALL | re.MULTILINE)


def test_s3_3_without_tools_results_are_labelled_text(talk: Talk) -> None:
    """§3.3, §4 I6: one block at the head of the current user message says what tool, with what arguments, whence; no
    half of a pair is left; the bill names the artifact."""
    talk.run_once()
    bill = talk.send(SECOND, tools=False)
    *before, current = talk.forwarded
    assert before == SAID
    assert current["role"] == "user"
    assert current["content"].endswith(SECOND["content"])
    ((head, body),) = items(current)
    assert body == "12 degrees, rain"
    assert 'type="tool_result"' in head
    assert 'source="history:msg_2:weather"' in head
    assert "arguments='" + json.dumps({"city": "Bern"}) + "'" in head
    (record,) = bill["context_utilization"]["artifacts_processed"]
    assert (record["source"], record["strategy"]) == ("history:msg_2:weather", "include_full")
    assert record["original_size_chars"] == record["processed_size_chars"] == len("12 degrees, rain")
    assert f'id="{record["artifact_id"]}"' in head
    assert bill["context_utilization"]["strategy"] == "simple"
    assert (bill["context_utilization"]["messages_included"], bill["context_utilization"]["messages_excluded"]) == (
        3,
        2,
    )


def test_s4_i7_what_was_told_as_text_stays_text(talk: Talk) -> None:
    """§4 I7: with tools, without, without, with again, a tool loop, without: each request begins with all that the
    one before it forwarded, and every result stands in the window once."""
    talk.run_once()
    talk.send(SECOND, tools=False, reply=assistant("sun"))
    seen = [talk.forwarded]
    bill = talk.send(THIRD, tools=False, reply=assistant("sure"))
    told = bill["context_utilization"]
    assert (told["artifacts_processed"], told["artifacts_standing"]["count"]) == ([], 1), (
        "brought back by the turn before"
    )
    assert bill["context_utilization"]["strategy"] == "simple"
    seen.append(talk.forwarded)
    talk.send(FOURTH, tools=True, reply=calls(call("c2", city="Basel"), content="one moment"))
    seen.append(talk.forwarded)
    talk.send(result("c2", "15 degrees"), tools=True, reply=assistant("15 in Basel."))
    seen.append(talk.forwarded)
    assert seen[-1][-2:] == [calls(call("c2", city="Basel"), content="one moment"), result("c2", "15 degrees")]
    for one, other in pairwise(seen):
        assert other[: len(one)] == one
    talk.send(user("Sum up"), tools=False, reply=assistant("done"))
    assert talk.forwarded[: len(seen[2])] == seen[2], "only what has to become text changes"
    assert talk.forwarded[len(seen[2]) : -1] == [assistant("one moment"), assistant("15 in Basel.")]
    assert [body for _, body in items(talk.forwarded[-1])] == ["15 degrees"]
    last = talk.forwarded
    talk.send(user("Thanks"), tools=True)
    assert talk.forwarded[: len(last)] == last
    everything = json.dumps(talk.forwarded)
    assert (everything.count("12 degrees, rain"), everything.count("15 degrees")) == (1, 1)


def test_s3_3_a_resend_that_dropped_the_steps(talk: Talk) -> None:
    """§3.1, §3.3: a client that keeps only what was said, and sends no tools, is told its results; once."""
    talk.run_once()
    talk.send(*SAID, SECOND, tools=False, reply=assistant("sun"))
    one = talk.forwarded
    assert one[:2] == SAID
    assert [body for _, body in items(one[2])] == ["12 degrees, rain"]
    talk.send(*SAID, SECOND, assistant("sun"), THIRD, tools=False)
    assert talk.forwarded == [*one, assistant("sun"), THIRD]
    talk.send(*SAID, user("edited"), tools=False)
    assert [body for _, body in items(talk.forwarded[2])] == ["12 degrees, rain"], "a branch of its own"
    whole = [*LOOP, SECOND, assistant("sun"), FOURTH]
    talk.send(*whole, tools=True)
    assert talk.forwarded == whole, "the client has its steps again: they are not said twice"


def test_s3_3_a_conversation_that_continues_by_itself(upstream: MockUpstream, client: OpenAI) -> None:
    """§3.2, §3.3: without an id, a client that dropped its steps earns them by what the assistant wrote; without tools
    they are told, once. One that has not earned them is told nothing."""
    answers = ["It rains in Bern: 12 degrees. " * 10, "Rain."]
    for number, said in enumerate(answers):
        ask = user(f"{number} What is the weather in Bern?")
        talk = Talk(client, upstream)
        talk.send(ask, tools=True, reply=LOOP[1])
        talk.send(ask, LOOP[1], LOOP[2], tools=True, reply=assistant(said))
        alone = Talk(client, upstream)
        alone.send(ask, assistant(said), SECOND, tools=False, reply=assistant("sun"))
        one = alone.forwarded
        if number:
            assert one == [ask, assistant(said), SECOND]
            continue
        assert (one[:2], alone.id) == ([ask, assistant(said)], talk.id)
        assert [body for _, body in items(one[2])] == ["12 degrees, rain"]
        alone.id = ""
        alone.send(ask, assistant(said), SECOND, assistant("sun"), THIRD, tools=False)
        assert alone.forwarded == [*one, assistant("sun"), THIRD]


def test_s3_3_results_beside_the_next_question_stay_a_pair(talk: Talk) -> None:
    """§3.3, §4 I7: a delta that answers the call and says more begins no turn: the pair stays, and what was forwarded
    at the turn's first step stands."""
    talk.run_once()
    talk.send(SECOND, tools=True, reply=calls(call("c2", city="Bern", days=1)))
    before = talk.forwarded
    talk.send(result("c2", "sun"), THIRD, tools=False)
    assert talk.forwarded == [*before, calls(call("c2", city="Bern", days=1)), result("c2", "sun"), THIRD]


def test_s4_i1_text_is_counted_and_reduced(talk: Talk) -> None:
    """§4 I1, I5: the block counts; what does not fit is reduced, and says so."""
    rows = "\n\n".join(f"Report {n}: the river rose by {n} cm at the bridge near the old mill." for n in range(600))
    talk.run_once(rows + "\n\nThe harbour of Arbon was closed at 9:41.", model="gpt-4o")
    bill = talk.send(user("When was the harbour of Arbon closed?"), tools=False, model="small")
    utilization = bill["context_utilization"]
    assert utilization["tokens_used"] <= utilization["budget_tokens"] <= SMALL_MODEL_INFO["max_input_tokens"]
    assert all(m["role"] != "tool" and "tool_calls" not in m for m in talk.forwarded)
    ((head, body),) = items(talk.forwarded[-1])
    assert "closed at 9:41" in body
    assert re.search(r'shown="extract, [\d,]+ of [\d,]+ characters"', head)
    assert utilization["artifacts_processed"][0]["strategy"] == "rag_extract"


@pytest.fixture
def two_providers(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """Two providers' models: the same mock by two addresses."""

    def entry(name: str, base: str) -> Json:
        params = {"model": f"openai/{name}", "api_base": base, "api_key": "sk-upstream"}
        return {"model_name": name, "litellm_params": params}

    other = upstream.base_url.replace("127.0.0.1", "localhost")
    return start_gateway({"model_list": [entry("gpt-4o", upstream.base_url), entry("elsewhere", other)]})


def test_s3_3_another_providers_steps_are_labelled_text(
    two_providers: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """§3.3, §4 I7 (per branch and model): another provider is told, whoever made the steps gets them back as they
    were, and for both each request begins with what they were sent before."""
    talk = Talk(make_client(two_providers), upstream)
    signed = {**LOOP[1], "reasoning_content": "ask for Bern", "thought_signature": "c2ln"}
    talk.send(ASK, tools=True, reply=signed)
    talk.send(LOOP[2], tools=True, reply=LOOP[3])
    maker = [talk.forwarded]
    talk.send(SECOND, tools=True, model="elsewhere", reply=assistant("sun"))
    other = [talk.forwarded]
    assert other[0][:2] == SAID
    assert [body for _, body in items(other[0][2])] == ["12 degrees, rain"]
    assert "c2ln" not in json.dumps(other[0])
    talk.send(THIRD, tools=True, reply=assistant("sure"))
    assert talk.forwarded == [ASK, signed, LOOP[2], LOOP[3], SECOND, assistant("sun"), THIRD]
    maker.append(talk.forwarded)
    talk.send(FOURTH, tools=True, model="elsewhere", reply=assistant("15"))
    other.append(talk.forwarded)
    assert other[1] == [*other[0], assistant("sun"), THIRD, assistant("sure"), FOURTH]
    talk.send(user("Thanks"), tools=True)
    maker.append(talk.forwarded)
    for seen in (maker, other):
        for one, after in pairwise(seen):
            assert after[: len(one)] == one
