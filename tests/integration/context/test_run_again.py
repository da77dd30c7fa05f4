"""Scripts that are run again against a model that answers the same: each run is one conversation (guarantee §3.2)."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.support.answers import Json, assistant, conversation_of, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply

TOOLS: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
TURNS = 4
LONG = "word " * 50
"""Enough assistant text that what the client left out comes back."""
_numbers = itertools.count()


class Deterministic:
    """A model that answers what it is asked, always the same, after as many tool steps as the question names. Its ids
    of calls repeat in every turn, as those of local servers do, unless `fresh`."""

    def __init__(self, upstream: MockUpstream) -> None:
        self.fresh = False
        self._numbers = itertools.count()
        upstream.handler = self._reply

    def _reply(self, record: Record) -> Reply:
        messages = record.body["messages"]
        last = max(i for i, message in enumerate(messages) if message["role"] == "user")
        question = str(messages[last]["content"]).rpartition("\n")[2]  # behind a block with what is attached
        steps = sum(message["role"] == "tool" for message in messages[last:])
        if steps < question.count("look"):
            number = f"fresh_{next(self._numbers)}" if self.fresh else f"call_{steps}"
            function = {"name": "look", "arguments": json.dumps({"at": steps})}
            call = {"id": number, "type": "function", "function": function}
            return Reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        return Reply(text=f"{LONG} answer to {question}")


@pytest.fixture
def model(gateway: GatewayProcess, upstream: MockUpstream) -> Deterministic:
    return Deterministic(upstream)


@pytest.fixture
def sdk(gateway: GatewayProcess, model: Deterministic) -> Iterator[OpenAI]:
    """The SDK of a tenant of the test's own."""
    with OpenAI(base_url=gateway.base_url, api_key=f"sk-again-{next(_numbers)}", max_retries=0) as client:
        yield client


class Script:
    """The ordinary loop: it resends everything. `returned` is what its tool gives, `drops`: it keeps final answers
    alone; `more` goes with every request."""

    def __init__(self, sdk: OpenAI, *, returned: str = "found", drops: bool = False, **more: Any) -> None:
        self._sdk, self._returned, self._drops, self._more = sdk, returned, drops, more
        self.messages: list[Json] = []
        self.conversations: list[str] = []

    def turn(self, question: str, **more: Any) -> None:
        """A turn with all its steps."""
        kept = [*self.messages, user(question)]
        self.messages = list(kept)
        while True:
            answer = self._ask(**more)
            said = answer.choices[0].message
            if said.tool_calls is None:
                self.messages = kept if self._drops else self.messages
                self.messages.append(assistant(said.content or ""))
                return
            self.messages.append(said.model_dump(exclude_none=True, exclude_unset=True))
            for call in said.tool_calls:
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": self._returned})

    def _ask(self, **more: Any) -> ChatCompletion:
        body: dict[str, Any] = {"model": "gpt-4o", "messages": self.messages, "tools": TOOLS, **self._more, **more}
        if body.pop("streamed", False):
            with self._sdk.chat.completions.stream(**body) as stream:
                answer: ChatCompletion = stream.get_final_completion()
        else:
            answer = self._sdk.chat.completions.create(**body)
        if (answer.model_extra or {}).get("conversation"):
            self.conversations.append(conversation_of(answer))
        return answer

    def run(self, turns: int = TURNS, words: str = "") -> str:
        """So many turns. Returns the conversation, which is one alone."""
        for number in range(turns):
            self.turn(f"question {number} {words}")
        assert len(set(self.conversations)) == 1, "one run is one conversation"
        return self.conversations[0]


@pytest.mark.parametrize(
    ("words", "drops", "streamed"),
    [
        ("", False, True),
        ("look", False, False),
        ("look", True, True),
        ("look and look", False, True),
        ("look and look", True, False),
    ],
)
def test_s3_2_each_run_is_one_conversation(sdk: OpenAI, words: str, drops: bool, streamed: bool) -> None:
    """§3.2: each run is a conversation, with and without tool steps, whether these are sent again or not."""
    many = 2 if words else 3
    runs = [Script(sdk, drops=drops, streamed=streamed).run(words=words) for _ in range(many)]
    assert len(set(runs)) == many


@pytest.mark.parametrize("drops", [False, True])
def test_s3_2_fresh_ids_and_changing_results(sdk: OpenAI, model: Deterministic, drops: bool) -> None:
    """§3.2: also where ids of calls and what tools return are others in each run."""
    model.fresh = True
    runs = [Script(sdk, returned=f"it is {n} o'clock", drops=drops).run(words="look") for n in range(3)]
    assert len(set(runs)) == 3


@pytest.mark.parametrize("words", ["", "look and look"])
def test_s3_2_a_run_that_stopped_on_its_way(sdk: OpenAI, words: str) -> None:
    """§3.2: where an earlier run ended, a later one is at the same place for a moment: equal in everything, the latest
    goes on."""
    for turns in (1, 2, 3):
        Script(sdk).run(turns, words)
    runs = [Script(sdk).run(words=words) for _ in range(2)]
    assert runs[0] != runs[1]


def test_s3_2_steps_that_were_sent_tell_which(sdk: OpenAI) -> None:
    """§3.2: of two that stopped at the same place with other results, the one whose steps were sent goes on."""
    one, other = Script(sdk, returned="one"), Script(sdk, returned="other")
    ids = [one.run(1, "look"), other.run(1, "look")]
    one.turn("more")
    other.turn("more")
    assert [one.conversations[-1], other.conversations[-1]] == ids


@pytest.mark.parametrize("apart", ["returned", "attached"])
def test_s3_2_two_who_said_the_same_never_get_each_others(sdk: OpenAI, upstream: MockUpstream, apart: str) -> None:
    """§3.2: alike in words, but not in what tools returned, or in what was attached: a new conversation, in which
    nothing of either is restored."""
    conversations = []
    for secret in ("the first secret", "the second secret"):
        more = {"extra_body": {"attachments": [{"content": secret}]}} if apart == "attached" else {}
        script = Script(sdk, returned=secret if apart == "returned" else "found", drops=True)
        script.turn("look", **more)
        conversations += script.conversations
    script.turn("what did you find?")
    assert script.conversations[-1] not in conversations
    assert "secret" not in str(upstream.last.body["messages"])


def test_s3_2_with_attachments(sdk: OpenAI, upstream: MockUpstream) -> None:
    """§3.2: run again with the same document, it is in its second conversation, and the document comes back."""
    runs = []
    for _ in range(2):
        script = Script(sdk)
        script.turn("read", extra_body={"attachments": [{"title": "paper", "content": "the paper says so"}]})
        script.turn("what does it say?")
        assert "the paper says so" in str(upstream.last.body["messages"])
        assert len(set(script.conversations)) == 1
        runs.append(script.conversations[0])
    assert runs[0] != runs[1]


@pytest.mark.parametrize("words", ["", "look"])
def test_s3_2_after_deletion_and_store_false(sdk: OpenAI, words: str) -> None:
    """§3.2: runs whose conversations were deleted, or that were not stored, do not tear a later one apart."""
    gone = Script(sdk).run(words=words)
    sdk.delete(f"/conversations/{gone}", cast_to=object)
    unstored = Script(sdk, store=False)
    unstored.turn(f"question 0 {words}")
    unstored.turn(f"question 1 {words}")
    assert not unstored.conversations
    assert Script(sdk).run(words=words) != gone


def test_s3_2_a_branch_does_not_tear_the_next_run_apart(sdk: OpenAI) -> None:
    """§3.2, §3.4: an answer made anew in the first run is a branch there; the second run stays whole."""
    first = Script(sdk)
    conversation = first.run(3)
    kept = first.messages
    first.messages = kept[:4]
    first.turn("another question")
    assert first.conversations[-1] == conversation
    assert Script(sdk).run(3) != conversation


def test_s3_2_two_processes_at_once(sdk: OpenAI) -> None:
    """§3.2, §3.7: of two runs at the same time none begins a third conversation, and nothing is lost."""
    with ThreadPoolExecutor(2) as pool:
        scripts = [Script(sdk), Script(sdk)]

        def run(script: Script) -> None:
            for number in range(TURNS):
                script.turn(f"question {number}")

        list(pool.map(run, scripts))
    assert all(len(script.messages) == 2 * TURNS for script in scripts)
    assert len({each for script in scripts for each in script.conversations}) <= 2
