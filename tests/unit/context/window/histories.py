"""Random conversations: parallel tool calls, big results, attachments, files, images, documents in messages."""

import base64
import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from gateway.context.artifacts.collect import attachments_to_artifacts
from gateway.context.manager import BuiltContext
from gateway.core.types.artifacts import Artifact, RequestAttachment
from gateway.core.types.conversation import ConversationHistory, frame_body, frame_of, new_message
from gateway.pipeline.frames import new_frame
from tests.support.o200k import prompt_tokens
from tests.unit.making import NOW, assistant, material_of, system, tool, user

VOCABULARY = """river bridge contract the of and engine Zürich invoice 2024 error timeout kettle harbour fox is not
paid customer <artifact> </context_data> request_id=7 naïve 数据 database index 😀 market rose fell"""
WORDS = VOCABULARY.split()
DOCUMENT_CHARS = 2500
"""Longer texts inside a user message may be treated as documents; less than by default, for speed."""
SIZES = st.sampled_from([3, 20, 60, 200, 500, 1200])
SHARES = st.sampled_from([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0, 1.1, 1.5])
"""Budgets, as shares of what the whole conversation takes."""
KINDS = st.sampled_from(["text", "text", "text", "parts", "fence", "long", "file", "image", "pasted"])
PROPERTIES = {
    "query": {"type": "string", "description": "What to look for, in the user's language."},
    "kind": {"type": "string", "enum": ["web", "news", "papers"], "description": "Where."},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Searches for what the user asked.",
            "parameters": {"type": "object", "properties": PROPERTIES, "required": ["query"]},
        },
    }
]


@dataclass
class Talk:
    """A conversation, its turns as (start, end), and what of the current message is the user's own."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    instructions: list[dict[str, Any]] = field(default_factory=list)
    attached: list[Artifact] = field(default_factory=list)
    attachments: list[RequestAttachment] = field(default_factory=list)
    forward: dict[str, Any] = field(default_factory=lambda: {"model": "gpt-4o"})
    own_words: list[str] = field(default_factory=list)

    def budget(self, share: float) -> int:
        """That share of the tokens of everything that might be forwarded."""
        documents = [user(a.content) for a in self.attached] + [user(a.content) for a in self.attachments]
        return 20 + int(share * prompt_tokens([*self.instructions, *documents, *self.messages], self.forward))

    @property
    def current(self) -> int:
        """Index of the current user message."""
        return self.turns[-1][0]


def prose(seed: int, words: int, shape: str = "prose") -> str:
    """Repeatable text of about that many words."""
    chosen = random.Random(seed)
    text = [chosen.choice(WORDS) for _ in range(words)]
    if shape == "json":
        records = [{"id": n, "v": " ".join(text[n : n + 6]), "x": 1.50} for n in range(0, words, 6)]
        return json.dumps(records, indent=chosen.choice([None, 2]))
    if shape == "csv":
        return "id,name,note\n" + "\n".join(f"{n},{a},{a}" for n, a in enumerate(text))
    if shape == "log":
        return "\n".join(f"2024-01-01 12:00:{n % 60:02} {w} {w}" for n, w in enumerate(text))
    marks = {7: ". ", 23: "\n\n", 61: "\n# "}
    return "".join(word + next((m for n, m in marks.items() if i % n == n - 1), " ") for i, word in enumerate(text))


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Up to five turns; the last is under way."""
    talk = Talk()
    seeds = st.integers(0, 10_000)
    if draw(st.booleans()):
        talk.instructions.append(system(prose(draw(seeds), draw(st.sampled_from([3, 30])))))
    if draw(st.booleans()):
        talk.forward["tools"] = TOOLS
    count = draw(st.integers(1, 5))
    for number in range(draw(st.sampled_from([0, 0, 0, 25]))):
        start = len(talk.messages)
        small = [user(f"asked-9{number}- weather?"), assistant(None, f"w{number}"), tool(f"w{number}", f"{number} °C")]
        talk.messages += [*small, assistant(f"said-9{number}- so so")]
        talk.turns.append((start, start + 4))
    for number in range(count):
        start = len(talk.messages)
        own = _user(draw, talk, number, draw(KINDS), draw(seeds), draw(SIZES))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"call_{number}_{step}_{n}" for n in range(draw(st.integers(1, 3)))]
            talk.messages.append(assistant(draw(st.sampled_from([None, f"step-{number}-{step}"])), *ids))
            for each in ids:
                shape = draw(st.sampled_from(["prose", "json", "csv", "log"]))
                talk.messages.append(tool(each, prose(draw(seeds), draw(SIZES), shape)))
        if number < count - 1:
            talk.messages.append(
                assistant(f"said-{number}- " + prose(draw(seeds), draw(st.sampled_from([5, 80, 600]))))
            )
        talk.turns.append((start, len(talk.messages)))
        talk.own_words = own
    documents = st.lists(st.tuples(seeds, SIZES), max_size=2)
    old = [RequestAttachment(content=prose(s, n), title=f"old <{s}>") for s, n in draw(documents)]
    talk.attached = attachments_to_artifacts(old) if count > 1 else []
    talk.attachments = [RequestAttachment(content=prose(s, n, "csv"), title="n") for s, n in draw(documents)]
    return talk


def _user(draw: st.DrawFn, talk: Talk, number: int, kind: str, seed: int, words: int) -> list[str]:
    """Appends a user message; returns what of it must be forwarded whenever it is the current one."""
    mark, end = f"asked-{number}- what is the {WORDS[seed % len(WORDS)]}?", f"closing-{number}-"
    long = prose(seed, max(words, 700))
    text = {"type": "text", "text": mark}
    content: Any = mark
    own = [mark]
    if kind == "parts":
        content, own = [{"type": "text", "text": long}, text], [mark]
    elif kind == "fence":
        content, own = f"{mark}\n```text\n{prose(seed, max(words, 700), 'log')}\n```\n{end}", [mark, end]
    elif kind == "long":
        content, own = f"{mark}\n\n{long}\n\n{end}", [mark, end]
    elif kind == "pasted":
        content, own = f"{mark}\n<doc n='1'>{prose(seed, words)}</doc>\n{end}", [mark, end]
    elif kind == "file":
        data = base64.b64encode(prose(seed, words).encode()).decode()
        file = {"filename": "notes.md", "file_data": f"data:text/markdown;base64,{data}"}
        content = [{"type": "file", "file": file}, text]
    elif kind == "image":
        detail = draw(st.sampled_from(["low", "high", "auto"]))
        content = [text, {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": detail}}]
    talk.messages.append(user(content))
    return own


def memory_of(built: BuiltContext) -> str | None:
    message = built.fitted.forwarded.memory
    return None if message is None else str(message.body["content"])


def goes_on(
    history: ConversationHistory, built: BuiltContext, *more: dict[str, Any]
) -> tuple[ConversationHistory, list[dict[str, Any]]]:
    """The conversation after the request was answered, and what was forwarded."""
    number = len(history.messages)
    new = [m.stored_as(f"msg_{number - 1}", NOW) for m in history.new_messages]
    made = new_frame("m", history, built, material_of(built), new)
    frame = history.frame
    if made is not None:
        read = frame_of(frame_body(made.frame))
        frame = read if made.full or frame is None else frame.followed_by(read)
    bodies = [assistant(f"It is so: {number}."), *more]
    told = [
        replace(new_message(body), message_id=f"msg_{number + n}" if n == 0 else None, sequence_number=number + n)
        for n, body in enumerate(bodies)
    ]
    messages = (*history.messages[: history.stored], *new, *told)
    after = replace(history, messages=messages, stored=len(messages) - len(more), frame=frame)
    return after, built.fitted.forwarded.messages
