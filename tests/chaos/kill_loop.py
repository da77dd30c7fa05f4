"""Kills the gateway between any two moments of a turn, restarts it, and compares with what clients were told."""

import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.audit import broken_rules, turns_in
from tests.chaos.told import ask_in_a_thread
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until

MOMENTS = ("before the call", "while waiting", "in the answer", "around the commit", "committed", "acknowledged")
WORDS = 12


@dataclass
class Talk:
    """One conversation as its client knows it: turns that must be there, and the one that may be."""

    session: str | None
    conversation_id: str | None = None
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    unknown: tuple[str, str] | None = None

    @property
    def name(self) -> dict[str, Any]:
        """The fields of a request that continue it."""
        if self.conversation_id:
            return {"conversation": self.conversation_id}
        return {"context": {"session": self.session}} if self.session else {}


class KillLoop:
    """Rounds of: ask, kill, restart, check. `lost`, `kept` count turns that were killed before their commit or
    after it without having been acknowledged; `acknowledged` those that their clients were told of."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, storage_url: str, seed: int) -> None:
        self.gateway, self.upstream, self.storage_url = gateway, upstream, storage_url
        self.random = random.Random(seed)
        self.talks: list[Talk] = []
        self.numbers = itertools.count(1)
        self.acknowledged = self.kept = self.lost = 0

    def run(self, kills: int) -> None:
        """`kills` rounds over all moments, streamed and not, then every conversation once more."""
        for number in range(kills):
            lap, place = divmod(number, len(MOMENTS))
            moment = MOMENTS[place]
            talk = self._talk()
            self._killed_turn(talk, moment, stream=(place + lap) % 2 == 1)
            self.gateway.start()
            assert broken_rules(self.storage_url) == {}, moment
            self._check(talk, moment)
        for talk in self.talks:
            self._check(talk, "the end")
        assert broken_rules(self.storage_url) == {}

    def _talk(self) -> Talk:
        known = [talk for talk in self.talks if talk.acknowledged]
        if known and self.random.random() < 0.6:
            return self.random.choice(known)
        talk = Talk(f"session {len(self.talks)}" if self.random.random() < 0.6 else None)
        self.talks.append(talk)
        return talk

    def _killed_turn(self, talk: Talk, moment: str, stream: bool) -> None:
        number = next(self.numbers)
        turn = (f"question-{number}-asked", " ".join(f"answer-{number}-{word}" for word in range(WORDS)))
        self.upstream.clear()
        self.upstream.reply(text=turn[1], **self._pace(moment, stream))
        message = {"role": "user", "content": turn[0]}
        body = {"model": "gpt-4o", "messages": [message], "stream": stream, **talk.name}
        told, ended = ask_in_a_thread(self.gateway.url, body)
        self._wait_for(moment, ended, turn[0])
        self.gateway.kill9()
        assert ended.wait(10)
        self.upstream.release()
        talk.conversation_id = talk.conversation_id or told.conversation_id
        if told.acknowledged:
            self.acknowledged += 1
            talk.acknowledged.append(turn)
        else:
            talk.unknown = turn

    def _pace(self, moment: str, stream: bool) -> dict[str, Any]:
        if moment == "while waiting":
            return {"gate": threading.Event()}
        if moment == "in the answer":
            return {"stall_after": self.random.randint(2, WORDS) if stream else 40}
        if moment == "around the commit" and stream:
            return {"chunk_delay": 0.001}
        return {}

    def _wait_for(self, moment: str, ended: threading.Event, marker: str) -> None:
        if moment == "before the call":
            time.sleep(self.random.uniform(0, 0.02))
        elif moment == "acknowledged":
            assert ended.wait(10)
        elif moment == "committed":
            wait_until(lambda: ended.is_set() or turns_in(self.storage_url, marker) > 0, "a commit", interval=0.0)
        else:
            record = self.upstream.wait_for_chats(1)[0]
            if moment == "in the answer":
                wait_until(lambda: record.pieces_sent >= 1, "a piece of the answer", interval=0.001)
                time.sleep(self.random.uniform(0, 0.01))
            elif moment == "around the commit":
                assert record.done.wait(PATIENCE)
                time.sleep(self.random.uniform(0, 0.008))

    def _check(self, talk: Talk, moment: str) -> None:
        """The turns listed, those forwarded, and those acknowledged agree; a turn that nobody was told of is there
        wholly or not at all."""
        listed = self._listed(talk) if talk.conversation_id else None
        if not talk.name:
            assert talk.unknown, moment
            assert turns_in(self.storage_url, talk.unknown[0]) in (0, 1)
            return
        question = f"follow-up-{next(self.numbers)}-asked"
        forwarded, answer = self._follow_up(talk, question)
        pairs = list(zip(forwarded[0::2], forwarded[1::2], strict=False))
        assert all((one["role"], other["role"]) == ("user", "assistant") for one, other in pairs), moment
        assert len(forwarded) == 2 * len(pairs) + 1, moment
        assert forwarded[-1] == {"role": "user", "content": question}
        seen = [(one["content"], other["content"]) for one, other in pairs]
        if talk.unknown and seen == [*talk.acknowledged, talk.unknown]:
            self.kept += 1
            talk.acknowledged.append(talk.unknown)
        elif talk.unknown:
            self.lost += 1
        talk.unknown = None
        assert seen == talk.acknowledged, f"{moment}: the history that is forwarded"
        if listed is not None:
            assert listed == [text for _, text in talk.acknowledged], f"{moment}: the completions that are listed"
        talk.acknowledged.append((question, answer))

    def _listed(self, talk: Talk) -> list[str]:
        """The answers of a conversation's completions; none for a new conversation whose only turn was lost. What was
        killed while its model was asked has a bill there, without an answer (§6.10)."""
        address = f"{self.gateway.base_url}/chat/completions"
        found = httpx.get(address, params={"conversation": str(talk.conversation_id)}, trust_env=False)
        if found.status_code == 404 and not talk.acknowledged:
            talk.conversation_id = None
            return []
        assert found.status_code == 200, found.text
        data = found.json()["data"]
        killed = [each for each in data if each["status"] == "failed"]
        assert not any(each.get("choices") for each in killed)
        complete = [each for each in data if each["status"] != "failed"]
        for each in complete:
            assert each["status"] == "complete"
            assert each["response_metadata"]["usage"]["completion_tokens"] > 0
        return [each["choices"][0]["message"]["content"] for each in complete]

    def _follow_up(self, talk: Talk, question: str) -> tuple[list[dict[str, Any]], str]:
        self.upstream.clear()
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": question}], **talk.name}
        told, ended = ask_in_a_thread(self.gateway.url, body)
        assert ended.wait(20)
        assert told.acknowledged, bytes(told.received)
        assert talk.conversation_id in (None, told.conversation_id)
        talk.conversation_id = told.conversation_id
        found = httpx.get(f"{self.gateway.base_url}/chat/completions/{told.completion_id}", trust_env=False).json()
        messages: list[dict[str, Any]] = self.upstream.last.body["messages"]
        return messages, found["choices"][0]["message"]["content"]
