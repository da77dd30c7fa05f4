"""Requests of very many messages or parts stop nobody else (guarantee §7: bad input is a 4xx, and never worse)."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.answers import image_part, system, tool_call, tool_result, user
from tests.support.gateway_here import lines_at_once
from tests.support.gateway_process import GatewayProcess

Messages = list[dict[str, Any]]
PIECES = 2001
MAX_LINES = 80
"""Lines of Python for each piece before anybody else has a chance: it is up to 52."""


def images(count: int) -> Messages:
    """One message of so many pictures."""
    image: Any = image_part("data:image/png;base64,AAAA", detail="low")
    return [user(count * [image])]


def systems(count: int) -> Messages:
    """System messages before a question."""
    return [*(system(f"be {n}") for n in range(count)), user("hi")]


def turns(count: int) -> Messages:
    """Messages that take turns."""
    return [{"role": ("user", "assistant")[n % 2], "content": f"hi {n}"} for n in range(count)]


def results(count: int) -> Messages:
    """Results of tools, and their calls."""
    call = tool_call("c", "f")
    step: Messages = [{"role": "assistant", "tool_calls": [call]}, tool_result("c", "done")]
    return [user("go"), *(count // 2 * step)]


@pytest.mark.parametrize("messages", [images, systems, turns, results])
@pytest.mark.parametrize(
    "asked", [{"context": {"dry_run": True}}, {"store": False}, {}], ids=["dry", "passing", "stored"]
)
def test_s7_a_request_of_very_many_pieces_stops_nobody_else(
    one_gateway: GatewayProcess, messages: Callable[[int], Messages], asked: dict[str, Any]
) -> None:
    """Others wait a few tenths of a second at most: for what is done at once with each piece, counted in lines."""
    body = {"model": "gpt-4o", "messages": messages(PIECES), **asked}
    headers = {"authorization": "Bearer sk-x"}
    with lines_at_once() as counted:
        answer = one_gateway.post("/chat/completions", json=body, headers=headers, timeout=60, key=None)
    assert answer.status_code in (200, 400), answer.text[:300]
    assert 0 < counted.most < MAX_LINES * PIECES


@pytest.mark.parametrize(
    ("path", "named", "asked"),
    [
        ("chat/completions", "messages", {"messages": turns(20_001)}),
        ("chat/completions", "input", {"input": turns(20_001)}),
        ("responses", "input", {"input": turns(20_001)}),
        ("messages", "messages", {"messages": turns(20_001), "max_tokens": 9}),
    ],
    ids=["chat", "other words", "responses", "messages"],
)
def test_s12_16_more_messages_than_may_come_at_once(
    one_gateway: GatewayProcess, path: str, named: str, asked: dict[str, Any]
) -> None:
    """Stored in one go they would let others wait; whoever sends them is told the bound, and who sets it."""
    body = {"model": "gpt-4o", **asked}
    headers = {"authorization": "Bearer sk-x"}
    url = f"{one_gateway.base_url}/{path}"
    answer = httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)
    error = answer.json()["error"]
    assert (answer.status_code, error.get("param", named)) == (400, named)
    for said in (f"{named} must be at most 20000", "server.max_messages", "20001"):
        assert said in error["message"]
