"""Has the session told to a gateway in a window, and to the same gateway without its memory of what it forwarded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from benchmarks.session.figures import Prompt, prompts
from benchmarks.session.talk import SYSTEM, Turn
from tests.support.agent_session import TOOLS, AgentSession
from tests.support.documents import prompt_tokens
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

MODEL = "gpt-4o"
Json = dict[str, Any]
SEVERAL = prompt_tokens({"messages": []})


@dataclass(frozen=True)
class Measured:
    """A way of forwarding the session, and its prompts."""

    name: str
    window: int | None
    prompts: list[Prompt]


def measure(turns: Sequence[Turn], windows: Sequence[int], folder: Path) -> Iterator[Measured]:
    """Everything sent, then for each window what the gateway forwards: as it does, and decided anew each time."""
    with MockUpstream() as upstream:
        upstream.count_prompt = prompt_tokens
        start = GatewayFactory(upstream, folder)
        try:
            gateway = start()
            said: list[Json] = []
            for window in windows:
                session = _told(upstream, gateway, turns, window)
                said = session.said
                if window == windows[0]:
                    yield Measured("everything sent", None, _prompts(_requests(said), said, None))
                yield Measured("gateway", window, _prompts(session.forwarded, said, window))
                upstream.clear()
                upstream.count_prompt = prompt_tokens
                yield Measured("decided anew", window, _prompts(_anew(upstream, gateway, said, window), said, window))
                upstream.clear()
                upstream.count_prompt = prompt_tokens
        finally:
            start.close()


def _told(upstream: MockUpstream, gateway: GatewayProcess, turns: Sequence[Turn], window: int) -> AgentSession:
    name, context = f"session {window}", {"max_input_tokens": window}
    session = AgentSession(upstream, [gateway], model=MODEL, name=name, system=SYSTEM, context=context)
    for turn in turns:
        session.turn(turn.question, turn.results, turn.answer)
    return session


def _requests(said: Sequence[Json]) -> list[list[Json]]:
    """What a client that sends everything sends with each request."""
    system: Json = {"role": "system", "content": SYSTEM}
    return [[system, *said[:number]] for number, message in enumerate(said) if message["role"] == "assistant"]


def _prompts(forwarded: Sequence[Sequence[Json]], said: Sequence[Json], window: int | None) -> list[Prompt]:
    whole = _requests(said)
    added = [whole[0], *(after[len(before) :] for before, after in pairwise(whole))]
    return prompts(forwarded, added, window, _tokens)


def _tokens(message: Json) -> int:
    return prompt_tokens({"messages": [message]}) - SEVERAL


def _anew(upstream: MockUpstream, gateway: GatewayProcess, said: Sequence[Json], window: int) -> list[list[Json]]:
    """What is forwarded of each request if nothing is known of those before: none of them is stored."""
    found = []
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        for messages in _requests(said):
            context = {"max_input_tokens": window}
            marked = [*messages[:1], {**messages[1], "content": f"Again: {messages[1]['content']}"}, *messages[2:]]
            body = {"model": MODEL, "messages": marked, "tools": TOOLS, "store": False, "context": context}
            client.post("/chat/completions", json=body).raise_for_status()
            found.append(upstream.last.body["messages"])
    return found
