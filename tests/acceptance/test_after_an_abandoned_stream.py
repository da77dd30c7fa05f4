"""The request after a stream that its client left: it waits for that turn's commit, and nobody else does (§3.7)."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from time import sleep
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.answers import Json, assistant, ok, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.schemas import locked_file

HELD_SECONDS = 0.6
"""Long enough that a request which does not wait is at its upstream by then."""
LONG = "word " * 50
_numbers = itertools.count()


@contextmanager
def nothing_is_committed(url: str) -> Iterator[None]:
    """Meanwhile everything can be read, and no turn can be stored."""
    if url.startswith("sqlite"):
        with locked_file(url):
            yield
        return
    with asyncio.Runner() as runner:
        locked = runner.run(asyncpg.connect(url.replace("+asyncpg", "")))
        runner.run(locked.execute("BEGIN"))
        runner.run(locked.execute("LOCK TABLE ledger IN EXCLUSIVE MODE"))
        try:
            yield
        finally:
            runner.run(locked.close())


class Person:
    """A client of a tenant of its own."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.gateway, self.upstream, self.key = gateway, upstream, f"sk-left-{next(_numbers)}"

    def ask(self, *messages: Json, **more: Any) -> Json:
        """The answer to a chat."""
        body = {"model": "gpt-4o", "messages": list(messages), **more}
        return ok(self.gateway.post("/chat/completions", json=body, key=self.key))

    @contextmanager
    def leave(self, url: str, *messages: Json, **more: Any) -> Iterator[None]:
        """A stream that is left once two words are there. From then on nothing is committed: what is written before a
        model is asked has been written by then."""
        self.upstream.reply(text="one two three four five", stall_after=3)
        body = {"model": "gpt-4o", "messages": list(messages), "stream": True, **more}
        with ExitStack() as held:
            with (
                self.gateway.http(self.key) as client,
                client.stream("POST", "/chat/completions", json=body) as answer,
            ):
                lines = answer.iter_lines()
                while "two" not in next(lines):
                    pass
                held.enter_context(nothing_is_committed(url))
            yield

    def forwarded(self, last: str) -> list[Json]:
        """What went up with the question."""
        return next(
            list(each.body["messages"]) for each in self.upstream.chats if each.body["messages"][-1]["content"] == last
        )


@pytest.fixture
def person(gateway: GatewayProcess, upstream: MockUpstream) -> Person:
    return Person(gateway, upstream)


@pytest.mark.parametrize("how", ["id", "session", "resend", "resend without the partial answer"])
@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.in_turn("how")
def test_s3_7_it_sees_the_abandoned_turn(
    person: Person, upstream: MockUpstream, module_storage_url: str, how: str, slowly: bool
) -> None:
    """§3.7: named or recognised, left at once or after a while: the turn that is being committed is in the history."""
    name = f"{how} {slowly}"
    session = {"context": {"session": f"left {name}"}} if how == "session" else {}
    upstream.reply(text=LONG)
    begun = person.ask(user(f"first {name}"), **session)["conversation"]["id"]
    known = [user(f"first {name}"), assistant(LONG)]
    resends = how.startswith("resend")
    named: Json = {"session": session, "id": {"conversation": begun}}.get(how, {})
    person.ask(user("warm"), store=False)
    with ThreadPoolExecutor(1) as pool:
        with person.leave(module_storage_url, *(known if resends else []), user("left"), **named):
            if slowly:
                sleep(0.2)  # long enough for the gateway to have noticed
            upstream.reply(text="at last")
            partial = [assistant("one two ")] if how == "resend" else []
            last = [*known, user("left"), *partial, user(f"next {name}")] if resends else [user(f"next {name}")]
            answer = pool.submit(person.ask, *last, **named)
            sleep(HELD_SECONDS)
        assert answer.result()["conversation"]["id"] == begun
    forwarded = person.forwarded(f"next {name}")
    if how == "resend without the partial answer":
        assert forwarded == last
    else:
        assert forwarded[:3] == [*known, user("left")]
        assert [m["role"] for m in forwarded[3:]] == ["assistant", "user"]
        assert forwarded[3]["content"].startswith("one two")
    items = person.gateway.get(f"/conversations/{begun}/items", params={"limit": 100}, key=person.key).json()["data"]
    texts = [item["content"][0]["text"] for item in items if item["type"] == "message"]
    assert texts.count("left") == 1


def test_s3_7_nobody_else_waits(person: Person, upstream: MockUpstream, module_storage_url: str) -> None:
    """§3.7: another conversation, and one of the same words by another tenant, go up while the commit is held."""
    if module_storage_url.startswith("sqlite"):
        pytest.skip("one writer at a time: who holds it back holds back what is written before a model is asked, too")
    upstream.reply(text="hi")
    begun = person.ask(user("hello"))["conversation"]
    upstream.reply(text="hi")
    other = person.ask(user("another hello"))["conversation"]
    stranger = Person(person.gateway, upstream)
    upstream.reply(text="hi")
    stranger.ask(user("hello"))
    with ThreadPoolExecutor(2) as pool:
        with person.leave(module_storage_url, user("left"), conversation=begun):
            calls = len(upstream.chats)
            answers = [pool.submit(person.ask, user("else"), conversation=other)]
            answers.append(pool.submit(stranger.ask, user("hello"), assistant("hi"), user("more")))
            upstream.wait_for_chats(calls + 2)
        assert [each.result()["object"] for each in answers] == ["chat.completion"] * 2


def test_s3_7_a_stream_that_is_still_read_is_not_waited_for(person: Person, upstream: MockUpstream) -> None:
    """§3.7: requests at once see what was committed when they began; neither waits for the other."""
    begun = person.ask(user("hello"))["conversation"]
    upstream.reply(text="one two three four five", stall_after=3)
    body = {"model": "gpt-4o", "messages": [user("reading")], "stream": True, "conversation": begun}
    with person.gateway.http(person.key) as client, client.stream("POST", "/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        while "two" not in next(lines):
            pass
        person.ask(user("at once"), conversation=begun)
        assert "reading" not in str(person.forwarded("at once"))


def test_s3_7_a_key_finds_the_answer_of_a_client_that_left(person: Person, upstream: MockUpstream) -> None:
    """ADR 9: an answer with a key is finished without its client. Who goes on, or asks for it again, waits for no end:
    both come out."""
    begun = person.ask(user("hello"))["conversation"]
    gate = threading.Event()
    upstream.reply(text="kept", gate=gate)
    body = {"model": "gpt-4o", "messages": [user("keyed")], "conversation": begun}
    with person.gateway.http(person.key) as client:
        headers = {"idempotency-key": person.key}
        with pytest.raises(httpx.ReadTimeout):
            client.post("/chat/completions", json=body, headers=headers, timeout=1.0)
        person.ask(user("meanwhile"), conversation=begun)
        assert "keyed" not in str(person.forwarded("meanwhile"))
        gate.set()
        while (again := client.post("/chat/completions", json=body, headers=headers)).status_code == 409:
            sleep(0.1)
        assert again.json()["choices"][0]["message"]["content"] == "kept"
