"""What tests that say nothing else would pass on, were it wrong: who left a mock upstream, and what failed in it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import PATIENCE, wait_until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "one two three"}], "stream": True}


@pytest.fixture
def mock() -> Iterator[MockUpstream]:
    with MockUpstream() as server:
        yield server


@pytest.fixture
def http(mock: MockUpstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mock.base_url, timeout=5) as client:
        yield client


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("script", [{}, {"cut_after": 3, "chunk_delay": 0.01}, {"cut_after": -1}], ids=str)
def test_who_was_answered_or_cut_off_has_not_left(
    mock: MockUpstream, http: httpx.Client, script: dict[str, Any], reset: bool
) -> None:
    mock.reply(**script, reset=reset)
    try:
        assert http.post("/chat/completions", json=CHAT).text.endswith("data: [DONE]\n\n")
    except (httpx.RemoteProtocolError, httpx.ReadError):
        assert script
    assert mock.last.done.wait(PATIENCE)
    assert not mock.last.disconnected.is_set()


def test_a_stall_lasts_until_the_peer_hangs_up(mock: MockUpstream, http: httpx.Client) -> None:
    mock.reply(stall_after=2)
    with http.stream("POST", "/chat/completions", json=CHAT) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        wait_until(lambda: mock.last.pieces_sent == 2, "two events")
        assert (mock.in_flight, mock.max_in_flight) == (1, 1)
        assert not mock.last.disconnected.is_set()
    assert mock.last.disconnected.wait(PATIENCE)
    assert mock.last.pieces_sent == 2


def test_what_fails_in_it_is_no_silent_500(mock: MockUpstream, http: httpx.Client) -> None:
    mock.handler = lambda record: Reply(text=record.body["no such field"])
    assert http.post("/chat/completions", json=CHAT).status_code == 500
    assert mock.violations == ["POST /v1/chat/completions: the mock failed: KeyError('no such field')"]
