"""Connections that fail, and what is left on them for the next request (guarantee §7).

What upstreams do wrong in an answer is in `tests/support/faults`, for all APIs.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, refusal, stored, user
from tests.support.factory import shared_gateway
from tests.support.faults import words
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until
from tests.support.raw import LAST, End, Step, head, piece, whole

CHAT: Json = {"model": "small", "messages": [user("hello")]}
SHORT = 0.3
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])


impatient = shared_gateway({"upstream": {"connect": SHORT, "first_byte": SHORT, "idle": SHORT}})


@pytest.fixture
def hasty(impatient: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway that waits 0.3 s for anything. After the test it must be as good as before: a next request works at
    once, and no call to the upstream is left open."""
    logged = len(impatient.log_text())
    yield impatient
    wait_until(lambda: upstream.in_flight == 0, "the end of all upstream calls")
    after = impatient.post("/chat/completions", json=CHAT)
    assert (after.status_code, after.json()["choices"][0]["message"]["content"]) == (200, "echo: hello")
    assert "Traceback" not in impatient.log_text()[logged:], "it was no fault of our own"


def ask(gateway: GatewayProcess, streamed: bool, **more: Any) -> httpx.Response:
    return gateway.post("/chat/completions", json={**CHAT, "stream": streamed, **more})


@BOTH
@pytest.mark.parametrize("connections", [1, 2])
def test_s7_reset_at_accept(hasty: GatewayProcess, upstream: MockUpstream, streamed: bool, connections: int) -> None:
    """A connection that fails before any byte is tried once more, and only once."""
    hasty.restart()  # no connection is left that could be used instead
    upstream.clear()
    upstream.reset_at_accept(connections)
    answer = ask(hasty, streamed)
    if connections == 1:
        assert answer.status_code == 200
        assert len(upstream.chats) == 1
    else:
        assert refusal(answer)[:2] == (502, "upstream_unreachable")
        assert not upstream.chats
        bill = stored(hasty, answer.headers["x-request-id"])
        cost = bill["response_metadata"]["cost"]
        assert (bill["status"], cost["total_cost"], cost["estimated"]) == ("failed", 0, False)
        assert "sk-upstream" not in answer.text + str(answer.headers)


def test_s7_a_kept_connection_that_has_died(hasty: GatewayProcess, upstream: MockUpstream) -> None:
    """The provider closed an idle connection: the client does not notice."""
    for _ in range(3):
        upstream.reply(raw=[whole(words.CHAT.body), 0.02, End.CLOSE])
        assert ask(hasty, False).status_code == 200


SMUGGLED = whole(words.CHAT.body.replace(b"one two", b"of somebody else"))
LEFT_OVER: dict[str, tuple[Step, ...]] = {
    "a second answer at once": (whole(words.CHAT.body) + SMUGGLED, End.KEEP),
    "a second answer later": (whole(words.CHAT.body), 0.05, SMUGGLED, End.KEEP),
    "more than the length said": (whole(words.CHAT.body) + b"tail", End.KEEP),
    "more than the last chunk": (head(transfer_encoding="chunked"), piece(words.CHAT.body), LAST + SMUGGLED, End.KEEP),
    "an answer that wants no other": (whole(words.CHAT.body, connection="close"), End.KEEP),
}


@pytest.mark.parametrize("name", LEFT_OVER)
def test_s7_nothing_is_left_over_for_the_next(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What an upstream says unasked never becomes the answer to another request."""
    upstream.reply(raw=LEFT_OVER[name])
    answer = ask(hasty, False)
    assert answer.json()["choices"] == words.CHAT.answer["choices"]
    assert upstream.last.done.wait(PATIENCE), "all has been said"
    for number in range(3):
        upstream.reply(text=f"answer {number}")
        assert ask(hasty, False).json()["choices"][0]["message"]["content"] == f"answer {number}"


@pytest.mark.parametrize("streamed", [False, True])
def test_s3_an_answer_in_another_role_is_remembered_as_the_assistants(
    one_gateway: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """§3.1, I3: nothing that no provider would take back is put in front of the next question."""
    upstream.reply(message={"role": "tool", "content": "yes"})
    body = {"model": "gpt-4o", "messages": [user("is it so?")]}
    first = one_gateway.post("/chat/completions", json={**body, "stream": streamed})
    conversation = first.headers["x-conversation-id"]
    second = one_gateway.post("/chat/completions", json={**body, "conversation": conversation})
    assert second.status_code == 200, second.text
    assert upstream.last.body is not None
    assert upstream.last.body["messages"][1] == {"role": "assistant", "content": "yes"}
