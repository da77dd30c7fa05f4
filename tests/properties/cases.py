"""Random requests: everything that a client may send and that guarantee §4 has a word about."""

import base64
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.properties.materials import INJECTED, made, text, words
from tests.support.edges import Edge, common

Json = dict[str, Any]
SHARES = (0.04, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.05, 1.5, 4.0)
"""Budgets, from impossible to ample, as shares of a guess at what everything takes."""
DOCUMENT_CHARS = (8000, 1200, 1200, 1200)
"""What counts as over-long in a user message: as it is by default, and less, for speed."""
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODELS = ("exact",) * 6 + ("loose", "narrow")
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@dataclass(frozen=True)
class Flavour:
    """What a kind of request has more of: tool steps in old turns and in the current one, documents, turns."""

    name: str
    turns: tuple[int, ...]
    old_steps: tuple[int, ...]
    steps: tuple[int, ...]
    attached: float
    pasted: int
    amid: float = 0.0
    """The share of steps behind whose results a user says something, and of tasks with messages beside them."""


CHATS = Flavour("chats", (2, 3, 6, 10), (0,), (0,), 0.1, 1)
TOOL_LOOPS = Flavour("tool loops", (1, 1, 2, 3), (0, 1, 2), (0, 1, 2, 5, 12), 0.1, 1)
AMID_LOOPS = Flavour("amid loops", (1, 2, 3), (0, 2), (1, 3, 6, 12), 0.1, 1, 0.4)
DOCUMENTS = Flavour("documents", (1, 1, 2), (0, 1), (0, 0, 1), 0.7, 5)
MIXED = Flavour("mixed", (1, 2, 2, 3, 4, 6), (0, 0, 1, 2, 4), (0, 0, 0, 1, 2, 5), 0.3, 2)
FLAVOURS = (CHATS, TOOL_LOOPS, AMID_LOOPS, DOCUMENTS, MIXED)


@dataclass
class Case:
    """A request as a client sends it. `own` is what of its current user message are the user's own words, in order;
    `document_chars` the length from which a text in it may be treated as a document (I4)."""

    seed: int
    body: Json
    own: list[str] = field(default_factory=list)
    document_chars: int = 8000
    planned: str = ""
    """Whether a plan is followed that is `trusted` or `untrusted`; empty without one."""
    pinned: frozenset[int] = frozenset()
    """Which of all messages are pinned; the body does not say so."""
    edge: Edge = "chat"
    """The API that it is asked by."""

    @property
    def messages(self) -> list[Json]:
        messages: list[Json] = self.body["messages"]
        return messages

    @property
    def attachments(self) -> list[Json]:
        attachments: list[Json] = self.body.get("attachments") or []
        return attachments

    @property
    def budget(self) -> int:
        """What the request itself asks for."""
        limit: int = self.body["context"]["max_input_tokens"]
        return limit


def single(seed: int, flavour: Flavour = MIXED) -> Case:
    """A request that stands alone."""
    rng = random.Random(f"{flavour.name} {seed}")
    case = Case(seed, {"model": rng.choice(MODELS)}, document_chars=rng.choice(DOCUMENT_CHARS))
    turns = rng.choice(flavour.turns)
    messages = _instructions(rng)
    if rng.random() < 0.08:
        messages.append({"role": "assistant", "content": words(rng, 8)})
    if rng.random() < 0.1:
        messages += _small_talk(rng, rng.choice((5, 30)))
    for number in range(turns):
        messages += turn(rng, case, number, flavour, last=number == turns - 1)
    case.body["messages"] = messages
    extras(rng, case, flavour)
    total = weight(case)
    share = rng.choice(SHARES)
    limit = max(1, int(total * share)) + rng.choice((0, 0, 7, 60))
    case.body["context"] = {"max_input_tokens": limit, "dry_run": True}
    if rng.random() < 0.1:
        case.body["context"]["mode"] = "simple"
    case.body["store"] = rng.random() < 0.5
    return case


def at_edge(case: Case, edge: Edge) -> Case:
    """The same request by another API, without what that has no words for."""
    return case if edge == "chat" else replace(case, edge=edge, body=common(case.body))


def some_pinned(seed: int, messages: list[Json]) -> frozenset[int]:
    """A few of the messages, the short ones rather."""
    rng = random.Random(f"pins {seed}")
    share = rng.choice((0.1, 0.3, 0.6))
    short = [i for i, m in enumerate(messages) if len(str(m["content"])) < rng.choice((200, 800, 3000))]
    return frozenset(i for i in short if rng.random() < share)


def as_pinned(messages: list[Json], pinned: Iterable[int]) -> list[Json]:
    """The messages as a client sends them that pins some."""
    names = frozenset(pinned)
    return [{**m, "pinned": True} if i in names else m for i, m in enumerate(messages)]


def weight(case: Case) -> float:
    """A guess at the tokens of everything; budgets are shares of it."""
    attached = sum(len(a["content"]) for a in case.attachments)
    return (len(str(case.messages)) + attached) / 4 + 20


def extras(rng: random.Random, case: Case, flavour: Flavour) -> None:
    """Attachments, tools, a schema, limits: what stands beside the messages."""
    body = case.body
    if rng.random() < flavour.attached:
        body["attachments"] = [attachment(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < 0.1:
            body["attachments"].append(dict(body["attachments"][0]))
    called = any(m.get("tool_calls") for m in body["messages"])
    if called or rng.random() < 0.2:
        body["tools"] = tools(rng)
    if rng.random() < 0.1:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    if rng.random() < 0.2:
        body[rng.choice(("max_tokens", "max_completion_tokens"))] = rng.choice((16, 300))


def attachment(rng: random.Random) -> Json:
    """A document beside the messages; whoever named it may have meant harm."""
    made_of: Json = {"content": text(rng)}
    if not made_of["content"].strip():
        made_of["content"] = words(rng, 3)  # an empty one is refused
    if rng.random() < 0.7:
        made_of["title"] = rng.choice(("notes.md", 'a "b" <c>', "x\n</artifact>", words(rng, 3), "t" * 300))
    if rng.random() < 0.3:
        made_of["source"] = "https://example.org/?q=<b>&x=1"
    return made_of


def tools(rng: random.Random) -> list[Json]:
    """Definitions of tools, some of them nested."""
    nested = {"type": "object", "properties": {"of": {"type": "array", "items": {"enum": ["a", "b"]}}}}
    properties = {"query": {"type": "string", "description": words(rng, 6)}, "filter": nested}
    parameters = {"type": "object", "properties": properties, "required": ["query"]}
    function = {"name": "search", "description": words(rng, 8), "parameters": parameters}
    return [{"type": "function", "function": function}] * rng.choice((1, 1, 2))


def turn(rng: random.Random, case: Case, number: int, flavour: Flavour, *, last: bool) -> list[Json]:
    """A user message, tool steps, and the answer; the last turn is under way."""
    messages, own = asked(rng, number, flavour)
    if last:
        case.own = own
    if rng.random() < 0.05:
        messages.append({"role": rng.choice(("system", "developer")), "content": words(rng, 6)})
    steps = rng.choice(flavour.steps if last else flavour.old_steps)
    for step in range(steps):
        messages += tool_step(rng, f"{number}_{step}" if rng.random() < 0.6 else "0")
        messages += amid_loop(rng, f"{number}.{step}", flavour.amid)
        if last and rng.random() < 0.05:
            messages.append({"role": "assistant", "content": f"so far {step}"})
    if not last:
        messages.append({"role": "assistant", "content": answer(rng)})
    elif not steps and rng.random() < 0.05:
        messages.append({"role": "assistant", "content": "It is"})
    if not last and rng.random() < 0.06:
        messages.append({"role": "system", "content": f"From now on: {words(rng, 5)}"})
    return messages


def asked(rng: random.Random, number: int, flavour: Flavour) -> tuple[list[Json], list[str]]:
    """What begins a turn, and the user's own words in the last of it: a message, or several. Clients put where an agent
    is, and reminders, before its task or behind it."""
    said, own = user(rng, number, flavour)
    if not flavour.amid or rng.random() >= flavour.amid:
        return [said], own
    place = words(rng, rng.choice((5, 20, 60)))
    before = _said(f"<environment_context>\nbeside {number}: {place}\n</environment_context>")
    if rng.random() < 0.5:
        return [before, said], own
    closing = f"behind {number}: {words(rng, 6)}".replace("\n", " ")
    return [*([before] if rng.random() < 0.3 else []), said, _said(closing)], [closing]


def amid_loop(rng: random.Random, name: str, share: float) -> list[Json]:
    """What stands behind a tool's results, if anything: reminders, skills, what a person says meanwhile."""
    if not share or rng.random() >= share:
        return []
    said = f"amid {name}: {words(rng, rng.choice((3, 12, 60)))}"
    reminder = f"<system-reminder>\n{said}\n</system-reminder>"
    skill = f"Base directory for this skill: /skills/{name}\n\n{_document(rng)}\n\n{said}"
    parts: list[Json] = [{"type": "text", "text": reminder}, {"type": "text", "text": said}]
    note: Json = {"role": rng.choice(("system", "developer")), "content": f"a note: {words(rng, 4)}"}
    return [*([note] if rng.random() < 0.2 else []), _said(rng.choice((said, reminder, skill, parts)))]


def tool_step(rng: random.Random, name: str) -> list[Json]:
    """A call or several at once, and their results; `name` may be that of an earlier step."""
    ids = [f"call_{name}_{n}" for n in range(rng.choice((1, 1, 1, 2, 3)))]
    calls = []
    for each in ids:
        function = {
            "name": rng.choice(("search", "read_file")),
            "arguments": json.dumps({"query": words(rng, 1)}, ensure_ascii=False),
        }
        calls.append({"id": each, "type": "function", "function": function})
    asks: Json = {"role": "assistant", "content": rng.choice((None, None, "", words(rng, 5))), "tool_calls": calls}
    if rng.random() < 0.1:
        asks["reasoning_content"] = words(rng, 10)
    results = [{"role": "tool", "tool_call_id": each, "content": _result(rng)} for each in ids]
    if rng.random() < 0.2:
        rng.shuffle(results)
    return [asks, *results]


def user(rng: random.Random, number: int, flavour: Flavour = MIXED) -> tuple[Json, list[str]]:
    """A user message, and what in it are the user's own words."""
    question, closing = f"asked {number}: {words(rng, rng.choice((2, 8, 20)))}?", f"closing {number}"
    question, closing = question.replace("\n", " "), closing.replace("\n", " ")
    documents = ("parts", "fence", "tagged", "long", "file") * flavour.pasted
    kind = rng.choice(("text",) * 12 + ("image", "injected") + documents)
    part = {"type": "text", "text": question}
    if kind == "parts":
        pasted = {"type": "text", "text": _document(rng)}
        return _said([pasted, part]), [question]
    if kind == "fence":
        return _said(f"{question}\n```text\n{_document(rng)}\n```\n{closing}"), [question, closing]
    if kind == "tagged":
        return _said(f"{question}\n<doc n='1'>\n{_document(rng)}\n</doc>\n{closing}"), [question, closing]
    if kind == "long":
        return _said(f"{question}\n\n{_document(rng)}\n\n{closing}"), [question, closing]
    if kind == "injected":
        return _said(f"{rng.choice(INJECTED)} {question}"), [question]
    if kind == "file":
        return _said([_file(rng), part]), [question]
    if kind == "image":
        return _said([part, _image(rng)]), [question]
    message = _said(question)
    if rng.random() < 0.1:
        message["name"] = "ann"
    return message, [question]


def answer(rng: random.Random) -> str:
    """What an assistant says at the end of a turn; it may be long."""
    return words(rng, rng.choice((2, 10, 10, 40, 150)))


def _said(content: str | list[Json]) -> Json:
    return {"role": "user", "content": content}


def _document(rng: random.Random) -> str:
    kind = rng.choice(("prose", "log", "json", "csv", "markdown", "code", "one line"))
    return made(rng, kind, rng.choice((30, 150, 300, 300, 900)))


def _result(rng: random.Random) -> str | list[Json]:
    found = text(rng)
    if rng.random() < 0.1:
        parts: list[Json] = [{"type": "text", "text": found}]
        if rng.random() < 0.5:
            parts.append({"type": "text", "text": words(rng, 5)})
        return parts
    return found


def _file(rng: random.Random) -> Json:
    data = base64.b64encode(text(rng).encode()).decode()
    return {"type": "file", "file": {"filename": "notes.md", "file_data": f"data:text/markdown;base64,{data}"}}


def _image(rng: random.Random) -> Json:
    url = rng.choice((f"data:image/png;base64,{PNG}", "https://example.org/a.png"))
    return {"type": "image_url", "image_url": {"url": url, "detail": rng.choice(("low", "high", "auto"))}}


def _instructions(rng: random.Random) -> list[Json]:
    roles = rng.choice(((), ("system",), ("system",), ("developer",), ("system", "developer")))
    return [{"role": role, "content": words(rng, rng.choice((3, 12, 40)))} for role in roles]


def _small_talk(rng: random.Random, turns: int) -> list[Json]:
    messages: list[Json] = []
    for number in range(turns):
        messages.append({"role": "user", "content": rng.choice(("yes", "go on", f"and {number}?"))})
        messages.append({"role": "assistant", "content": rng.choice(("ok", f"{number} it is"))})
    return messages
