"""The requests that the load generator sends: bytes made once, with ten digits that differ from request to request."""

import json
import random
from dataclasses import dataclass
from typing import Any

MODEL = "bench"
NONCE = b"0000000000"
PROSE = """
about above across after again against almost along always among answer around before behind below between board
bridge builder carried carriage century certain change channel children circle clear climate coast colour common
company consider contract could country course cover current daily danger decide deep degree deliver describe design
detail different discover distance document during early eastern effect engine enough evening every example
experience explain family farmer field figure finally flood follow forest forward found garden general given
gradually ground group happened harbour heavy height history however hundred important increase industry instead
interest island journey keep kitchen knowledge large later learned leave ledger letter level light likely listen
little machine market material matter measure meeting merchant method middle minute moment money morning mountain
moved natural nearly necessary neighbour never northern nothing notice number object observe office often opened
opinion order ordinary other outside paper particular passed people perhaps period person picture place plain point
position possible practice prepare present pressure price problem produce promise proper proposal public purpose
quality quarter question quick quiet railway rather reached reason receive record region remain remember report
require result return river road room second section seemed several shape short should signal simple slowly small
someone sometimes south special stand station still stone storm street strong subject suddenly sugar summer supply
surface system table teacher temperature the the the the of of of and and to to in in a a that was it is for on with
as his they at be this
"""
VOCABULARY = PROSE.split()


@dataclass(frozen=True)
class Payload:
    """A request body around its `NONCE`, and what its answer will be."""

    head: bytes
    tail: bytes
    stream: bool = False

    @property
    def size(self) -> int:
        """Bytes of a whole body."""
        return len(self.head) + len(NONCE) + len(self.tail)

    def body(self, number: int) -> bytes:
        """The body of the request of that number."""
        return b"%s%010d%s" % (self.head, number, self.tail)


def prose(seed: int, chars: int) -> str:
    """Sentences of English words, the same for the same seed, of about `chars` characters."""
    rng = random.Random(seed)
    sentences: list[str] = []
    size = 0
    while size < chars:
        words = " ".join(rng.choices(VOCABULARY, k=rng.randint(6, 18)))
        sentences.append(words.capitalize() + ".")
        size += len(sentences[-1]) + 1
    return " ".join(sentences)[:chars]


def _payload(messages: list[dict[str, str]], **fields: Any) -> Payload:
    body = {"model": MODEL, "messages": messages, "temperature": 0.7, **fields}
    head, nonce, tail = json.dumps(body, separators=(",", ":")).encode().partition(NONCE)
    assert nonce
    return Payload(head, tail, bool(fields.get("stream")))


def chat(mark: str = "", **fields: Any) -> Payload:
    """A chat of about 1 KB: a system message and a question. `mark` tells the mock what to answer."""
    system = {"role": "system", "content": prose(1, 300)}
    question = {"role": "user", "content": f"Question {NONCE.decode()}: {prose(2, 450)} {mark}".strip()}
    return _payload([system, question], **fields)


def stream(chunks: int, spacing: int, together: int = 0) -> Payload:
    """The 1 KB chat, answered by a stream of `chunks` content chunks, `spacing` ms apart; the second chunk comes when
    so many streams are open."""
    return chat(f"[bench chunks={chunks} spacing={spacing} together={together}]", stream=True)


def refused(status: int) -> Payload:
    """The 1 KB chat, answered by an error."""
    return chat(f"[bench status={status}]")


def long_chat(new_history: bool = False) -> Payload:
    """A chat of 400 KB in 400 messages: a system message, then user and assistant in turn.

    The number that differs stands in the last message, as when a client resends its history; or in the first question,
    so that each request is a conversation never seen before.
    """
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": prose(100 + i, 970)} for i in range(399)]
    changed = turns[0 if new_history else -1]
    changed["content"] = f"Question {NONCE.decode()}: {changed['content']}"
    return _payload([{"role": "system", "content": prose(1, 970)}, *turns])


def malformed() -> Payload:
    """A body that is no chat: the gateway's own refusal."""
    return Payload(b'{"model":"bench","messages":"', b'"}')
