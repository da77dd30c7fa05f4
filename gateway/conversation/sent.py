"""What a client sent, as a chain of messages: what it is recognised by, and what is new in it (contract §3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.models.chain import START, ChainKey, Mark, call_ids, calling, chain_key, is_step, marks_of, plain_marks
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.exchange import ChatRequest

PEOPLE = ("user", "safety_identifier")


@dataclass(frozen=True, slots=True)
class Sent:
    """The messages of a request: leading system messages, the rest, and the marks after each of these.

    `prefilled`: the last is the beginning of the answer (contract §3.4). `answers`: assistant's messages before that.
    """

    instructions: tuple[dict[str, Any], ...]
    bodies: Sequence[dict[str, Any]]
    marks: Sequence[Mark]
    prefilled: bool
    answers: bool

    @property
    def matched(self) -> int:
        """How many of the messages may be stored already: all but a prefill."""
        return len(self.bodies) - self.prefilled

    def mark(self, count: int) -> Mark:
        """The mark after the first `count` messages."""
        return self.marks[count - 1] if count else START


def sent_in(request: ChatRequest) -> Sent:
    """The messages of a request as a chain."""
    instructions = sent_instructions(request)
    count = len(instructions)
    bodies = request.messages[count:]
    if request.plain is not None:
        marks = plain_marks(request.plain.roles[count:], request.plain.texts[count:])
    else:
        marks = marks_of(bodies)
    prefilled = bool(bodies) and bodies[-1]["role"] == "assistant" and not is_step(bodies[-1])
    answers = any(body["role"] == "assistant" for body in bodies[: len(bodies) - prefilled])
    return Sent(instructions, bodies, marks, prefilled, answers)


def sent_instructions(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The leading system and developer messages."""
    messages, count = request.messages, 0
    while count < len(messages) and messages[count]["role"] in INSTRUCTION_ROLES:
        count += 1
    return messages[:count]


def people_of(forward: dict[str, Any]) -> tuple[str, ...]:
    """Who asks, as the request says it (`user`, `safety_identifier`): a part of what a chain is recognised by."""
    return tuple(sorted({name for key in PEOPLE if isinstance(name := forward.get(key), str) and name}))


def keys_of(sent: Sent, secret: bytes, tenant: str, people: Sequence[str]) -> tuple[ChainKey, ...]:
    """The chains that the request may continue, the first that is known counts: that of its last answer, and if that
    may be a prefill also that of the answer before."""
    found: list[ChainKey] = []
    for index in range(len(sent.bodies) - 1, -1, -1):
        body = sent.bodies[index]
        if body["role"] != "assistant":
            continue
        if is_step(body):
            found.append(chain_key(secret, tenant, people, calling(sent.mark(index), body), call_ids(body)))
        else:
            found.append(chain_key(secret, tenant, people, sent.marks[index].said))
        if not (sent.prefilled and index == len(sent.bodies) - 1):
            break
    return tuple(found)
