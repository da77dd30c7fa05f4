"""What clients do to their own copy of a conversation before they send it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.support.history_model import Json

SYSTEMS: list[list[Json]] = [
    [],
    [{"role": "system", "content": "Be brief."}],
    [{"role": "developer", "content": "Be long."}, {"role": "system", "content": "Be kind."}],
]


@dataclass(frozen=True)
class Way:
    """How a request names its conversation (`itself`, `id`, `session`), and how the client sends its copy again."""

    by: str = "itself"
    sends: str = "all"
    drops: str = "nothing"
    writes: str = "as it is"
    stores: bool = True


def shaped(system: Sequence[Json], view: Sequence[Json], new: Sequence[Json], way: Way) -> list[Json]:
    """The messages of a request."""
    head = [] if way.drops == "system" else list(system)
    if way.sends == "new":
        return [*head, *new]
    old = list(view)
    if way.drops in ("tools", "first tools"):
        old = without_steps(old, only_first=way.drops == "first tools", current=bool(new and new[0]["role"] == "tool"))
    if way.sends == "tail":
        old = tail(old)
    if way.drops == "reasoning":
        old = [{name: value for name, value in m.items() if name != "reasoning_content"} for m in old]
    return [*head, *_rewritten([*old, *new], way.writes)]


def without_steps(view: Sequence[Json], *, only_first: bool, current: bool) -> list[Json]:
    """Without tool steps, or the first; never those of the turn under way if their results are `current`."""
    kept: list[Json] = []
    dropping, dropped = False, 0
    last = max(number for number, message in enumerate(view) if message["role"] == "user")
    for number, message in enumerate(view):
        if message.get("tool_calls"):
            dropping = not (number > last and current) and not (only_first and dropped)
            dropped += dropping
        elif message["role"] != "tool":
            dropping = False
        if not dropping:
            kept.append(message)
    return kept


def tail(view: Sequence[Json]) -> list[Json]:
    """The last turns: about half, from a user's message on."""
    questions = [number for number, message in enumerate(view) if message["role"] == "user"]
    return list(view[questions[len(questions) // 2] :]) if questions else list(view)


def edited(view: Sequence[Json], at: int, cut: bool, text: str) -> list[Json]:
    """With other words in one message, and on request without all that followed it."""
    at %= len(view)
    while view[at].get("tool_calls"):
        at -= 1
    follows = [] if cut else view[at + 1 :]
    return [*view[:at], {**view[at], "content": text}, *follows]


def upto_last_question(view: Sequence[Json]) -> list[Json]:
    """Without what the assistant last answered, and did to answer."""
    last = max(number for number, message in enumerate(view) if message["role"] == "user")
    return list(view[: last + 1])


def _rewritten(messages: Sequence[Json], how: str) -> list[Json]:
    """In other writing, but for an answer in two messages: between those, white space is not outer."""
    answers = [m["role"] == "assistant" for m in messages]
    halves = [(one and other) for one, other in pairwise([False, *answers, False])]
    return [m if halves[i] or halves[i + 1] else _written(m, how) for i, m in enumerate(messages)]


def _written(message: Json, how: str) -> Json:
    content: Any = message.get("content")
    if not isinstance(content, str) or not content or how == "as it is":
        return message
    if how == "spaces":
        return {**message, "content": f" {content}\n"}
    return {**message, "content": [{"type": "text", "text": content}]} if message["role"] != "tool" else message
