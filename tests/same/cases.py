"""Random cases: each a few requests that belong together, made by a seed and a number and by what was answered."""

import base64
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.same.normal import parsed
from tests.same.provider import ARTIFACT, RELAYED, Fate
from tests.same.settings import ADMIN, ASKED
from tests.same.side import Entry, Got, Side
from tests.support.documents import docx, lamps, pdf, prose
from tests.support.edges import EDGES, PATHS, Edge, Json, common, heard, said_by
from tests.support.pdfs import pictured, with_photos
from tests.support.sse import chunks_of, messages_of

TOOLS: list[Json] = [
    {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}}}
    for name in ("read_log", "list_orders", "create_workflow")
]
PICTURE = f"data:image/png;base64,{base64.b64encode(pictured(['Lamp 7'], 'PNG')).decode()}"
WORLDS = ("open", "open", "keys")
LITELLM = 50
"""Every so many cases may ask a model through litellm, which a gateway needs seconds to load."""


class Case:
    """One client with one conversation: what was said so far, and how it goes on."""

    def __init__(self, side: Side, seed: int, number: int) -> None:
        self.side = side
        self.number = number
        self.dice = random.Random(f"{seed}/{number}")
        self.edge: Edge = self.dice.choice(EDGES)
        self.model = self.dice.choice(ASKED)
        self.history: list[Json] = []
        self.conversation: str | None = None
        self.answer: str | None = None
        self.last = Got(0, {}, "")
        self.more: Json = {}
        self.headers: dict[str, str] = {}
        self.streams = self.dice.random() < 0.4
        self.goes_on = self.dice.choice(("id", "resend", "resend", "session", "previous", "both"))
        self.tools: list[Json] = []

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.dice.random() < share

    def session(self) -> str:
        """The client's own name of the conversation."""
        return f"session-{self.number}"

    def ask(self, *said: Json, fates: tuple[Fate, ...] = (), leave: str | None = None, **options: Any) -> Got:
        """One request that goes on with the conversation; the answer is part of it then."""
        if self.model == "claude" and self.number % LITELLM:
            self.edge = "messages"
        body: Json = {"model": self.model, "stream": self.streams, **self.more, **options}
        if self.tools and "tools" not in options:
            body["tools"] = self.tools
        goes_on = self.goes_on if body.get("store", True) and body.get("context", {}).get("mode") != "off" else "resend"
        resends = goes_on in ("resend", "both")
        body["messages"] = [*(self.history if resends else ()), *said]
        context = dict(body.pop("context", {}))
        if goes_on == "session":
            context["session"] = self.session()
        if context:
            body["context"] = context
        named = goes_on in ("id", "both", "previous") and self.conversation
        previous = self.answer if goes_on == "previous" and self.edge == "responses" else None
        if named and not previous:
            body["conversation"] = self.conversation
        wire = self.worded(body)
        if previous:
            wire["previous_response_id"] = previous
        got = self.side.call("POST", f"/v1/{PATHS[self.edge]}", wire, *fates, leave=leave, headers=self.headers)
        self.last = got
        message = self.heard(got) if got.ok and leave is None else None
        if message is not None:
            self.history += [*said, message]
        return got

    def worded(self, body: Json) -> Json:
        """A chat's request in the words of this case's API."""
        beside = {name: body.pop(name) for name in [*body] if name in BESIDE}
        if self.edge == "chat":
            return {**body, **beside.pop("raw", {}), **beside}
        try:
            made = said_by(self.edge, common(body))
        except Exception:  # what it has no words for, it sends as a chat would
            self.edge = "chat"
            return {**body, **beside.pop("raw", {}), **beside}
        if self.edge == "messages" and "user" in beside:
            made["metadata"] = {"user_id": beside.pop("user")}
        return {**made, **beside.pop("raw", {}), **beside}

    def heard(self, got: Got) -> Json | None:
        """The assistant's message of a whole answer or a stream, as a chat has it."""
        try:
            body = got.json or _streamed(self.edge, got.text)
            self.conversation = (
                (body.get("conversation") or {}).get("id") or got.headers.get("x-conversation-id") or self.conversation
            )
            self.answer = body.get("id") or self.answer
            if "choices" in body and "response_metadata" not in body:
                return dict(body["choices"][0]["message"])
            return heard(self.edge, {"response_metadata": {}, **body}).message
        except (KeyError, IndexError, TypeError, ValueError, StopIteration):
            return None

    def get(self, path: str) -> Got:
        """Reads something."""
        return self.side.call("GET", path)

    def question(self) -> str:
        """A user's words."""
        return self.dice.choice(QUESTIONS).format(self.dice.randint(0, 40), self.dice.randint(1, 9))

    def document(self, most: int = 60) -> str:
        """A text of some kind and length."""
        return self.dice.choice(DOCUMENTS)(self.dice, self.dice.randint(1, most))

    def fate(self) -> Fate:
        """An answer of some kind."""
        thought = "Let me see." if self.chance(0.2) else None
        kind = self.dice.choices(("answer", "long", "empty", "uncounted"), (20, 1, 1, 1))[0]
        text = f"It is {self.dice.choice(ANSWERS)}, {prose(self.dice.randint(0, 99), self.dice.randint(1, 80))}"
        return Fate(kind=kind, text=text, thought=thought)

    def answer_calls(self, got: Got, most: int = 60) -> list[Json]:
        """The results of the calls of the last answer; none where it has none."""
        calls = (self.history[-1].get("tool_calls") or ()) if got.ok and self.history else ()
        return [{"role": "tool", "tool_call_id": call["id"], "content": self.document(most)} for call in calls]

    def options(self) -> Json:
        """Random options of one request."""
        found: Json = {}
        context: Json = {}
        if self.chance(0.4):
            context["max_input_tokens"] = self.dice.choice((400, 900, 1500, 2500, 4000))
        if self.chance(0.3):
            context["planning"] = self.dice.choice(("always", "always", "auto", "never"))
        if self.chance(0.1):
            context["mode"] = self.dice.choice(("simple", "off", "auto"))
        if self.chance(0.15):
            context["memory"] = self.dice.choice(("extracts", "summary", "both"))
        if self.chance(0.1):
            context["cite"] = True
        if self.chance(0.1):
            context["recall"] = True
        if self.chance(0.1):
            context["profile"] = self.dice.choice(("general", "creation", "search", "modification", "analysis", "off"))
        if self.chance(0.05):
            context["goal"] = self.dice.choice(("reasoning", "synthesis"))
        if self.chance(0.05):
            context["models"] = {
                "context_planner": "gpt-4o-mini",
                "summarizer": self.dice.choice(("gpt-4o-mini", "small")),
            }
        if context:
            found["context"] = context
        if self.chance(0.1):
            found["max_tokens"] = self.dice.choice((1, 100, 400))
        if self.chance(0.1):
            found["user"] = self.dice.choice(("ann", "bob"))
        if self.chance(0.1):
            found["temperature"] = 0.5
        if self.chance(0.1) and self.edge != "messages":
            found["metadata"] = {"team": "lamps", "n": str(self.number)}
        return found


BESIDE = (
    "user",
    "metadata",
    "raw",
    "n",
    "safety_identifier",
    "service_tier",
    "context_management",
    "thinking",
    "reasoning",
    "include",
    "prompt_cache_key",
    "unknown_field",
)
"""Fields that are sent beside what all APIs can say: as they are."""
QUESTIONS = (
    "Who keeps lamp {0}?", "What was said of lamp {0}, and who is called Name{0}x?", "Go on with step {1}.",
    "yes", "Which order has status sent, number {0}?", "Summarize what we have found so far.",
    "What stands in line {1} of the log? And on page {1}?", "Update my Task{1} workflow.", "Find the largest amount.",
    "Write to ann{0}@example.com that lamp {1} is lit.",
)  # fmt: skip
ANSWERS = ("so", "not so", "lamp 7", "42", "order 3")


def _orders(dice: random.Random, size: int) -> str:
    rows = [
        {"order": n, "status": dice.choice(("sent", "open")), "amount": dice.randint(1, 999)} for n in range(size * 2)
    ]
    return json.dumps(rows, indent=dice.choice((None, 2)))


def _log(dice: random.Random, size: int) -> str:
    lines = [
        f"2026-01-02T03:{n % 60:02d}:00Z {'ERROR' if dice.random() < 0.1 else 'INFO'} worker {n}: {prose(n, 6)}"
        for n in range(size * 2)
    ]
    return "\n".join(lines)


def _table(dice: random.Random, size: int) -> str:
    return "name,keeper,amount\n" + "\n".join(
        f'lamp {n},"Name{n * 7}x",{dice.randint(1, 999)}' for n in range(size * 3)
    )


DOCUMENTS: tuple[Callable[[random.Random, int], str], ...] = (
    lambda dice, size: lamps(size, dice.choice((10, 40))), _orders, _log, _table,
    lambda dice, size: prose(dice.randint(0, 5), size * 30),
    lambda dice, size: json.dumps({"id": f"wf_{dice.randint(1, 9)}", "name": f"Task{size % 9}", "status": "ok"}),
)  # fmt: skip


@cache
def _photos() -> bytes:
    """A PDF whose pages have pictures."""
    return with_photos([f"Page of lamp {n}, kept by Name{n * 7}x. {prose(n, 150)}" for n in range(9)], 60)


@cache
def _letter() -> str:
    """A DOCX, with the time in it at which it was made."""
    return base64.b64encode(docx([f"Lamp {n} is kept by Name{n * 7}x." for n in range(30)])).decode()


def user(content: Any, **more: Any) -> Json:
    """A user's message."""
    return {"role": "user", "content": content, **more}


def _streamed(edge: Edge, text: str) -> Json:
    """The whole answer that a stream adds up to."""
    if edge == "chat":
        chunks = chunks_of(text.encode())
        first = next((each for each in chunks if each.get("id")), {})
        message = messages_of(each for each in chunks if "choices" in each)[0]
        if not message["content"]:
            message["content"] = None
        return {"id": first.get("id"), "conversation": first.get("conversation"), "choices": [{"message": message}]}
    events = [each["data"] for each in parsed(text) if isinstance(each, dict)]
    if edge == "responses":
        return dict(
            next(each["response"] for each in reversed(events) if "response" in each and each["response"].get("usage"))
        )
    blocks: list[Json] = []
    message = next(each["message"] for each in events if each["type"] == "message_start")
    for each in events:
        if each["type"] == "content_block_start":
            blocks.append({**each["content_block"], "json": ""})
        elif each["type"] == "content_block_delta":
            delta = each["delta"]
            for name in ("text", "thinking"):
                if name in delta:
                    blocks[-1][name] += delta[name]
            blocks[-1]["json"] += delta.get("partial_json", "")
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}")
    return {**message, "content": blocks}


def talk(case: Case) -> None:
    """A conversation that goes on, is edited, regenerated, and says odd things."""
    if case.chance(0.4):
        case.history.append({"role": "system", "content": "You are brief. " * case.dice.randint(1, 30)})
    if case.chance(0.25):
        case.more["store"] = False
    for _ in range(case.dice.randint(2, 7)):
        act = case.dice.random()
        if act < 0.15 and len(case.history) > 3 and case.goes_on in ("resend", "both"):
            del case.history[-2:]
            while case.history and case.history[-1]["role"] not in ("assistant", "system"):
                case.history.pop()
            if case.chance(0.4) and case.history and isinstance(case.history[0].get("content"), str):
                case.history[0] = {**case.history[0], "content": case.history[0]["content"] + " (edited)"}
        content: Any = case.question()
        if case.chance(0.2):
            content += "\n\n```\n" + case.document() + "\n```\n\n" + case.question()
        elif case.chance(0.1):
            content = [{"type": "text", "text": content}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        options = case.options()
        if case.chance(0.1):
            options["context"] = {**options.get("context", {}), "dry_run": True}
        if case.chance(0.05) and case.edge == "chat":
            options["n"] = 2
        if case.chance(0.05):
            options["unknown_field"] = {"a": [1, 2.50, None]}
        if case.streams and case.edge == "chat" and case.chance(0.5):
            options["stream_options"] = {"include_usage": True}
        pinned = {"pinned": True} if case.chance(0.07) else {}
        got = case.ask(user(content, **pinned), fates=(case.fate(),), **options)
        if got.ok and case.chance(0.2):
            case.get(f"/v1/chat/completions/{got.headers.get('x-request-id')}")
        if case.chance(0.15):
            case.edge = case.dice.choice(EDGES)
        if case.chance(0.1):
            case.model = case.dice.choice(ASKED)
        if case.chance(0.2):
            case.streams = not case.streams
    look(case)


def loop(case: Case) -> None:
    """Loops of tools, whose results are large for their windows."""
    case.tools = TOOLS
    if case.chance(0.25):
        case.more["store"] = False
    if case.chance(0.6):
        case.more["context"] = {"max_input_tokens": case.dice.choice((1200, 2000, 3000, 5000))}
        if case.chance(0.3):
            case.more["context"]["planning"] = "always"
        if case.chance(0.15):
            case.more["context"]["memory"] = "both"
    for _ in range(case.dice.randint(1, 3)):
        said: list[Json] = [user(case.question())]
        for _ in range(case.dice.randint(1, 5)):
            names = case.dice.sample([tool["function"]["name"] for tool in TOOLS], case.dice.randint(1, 2))
            calls = tuple((name, {"path": f"log-{case.dice.randint(1, 5)}.txt", "name": "Task1"}) for name in names)
            thought = "I look." if case.chance(0.2) else None
            got = case.ask(*said, fates=(Fate(kind="tools", calls=calls, thought=thought), case.fate()))
            said = case.answer_calls(got)
            if not said:
                break
        if said and said[0]["role"] == "tool":
            case.ask(*said, fates=(case.fate(),))
        if case.chance(0.2):
            case.tools = [] if case.tools else TOOLS
    if case.conversation and case.chance(0.15):
        path = f"/v1/conversations/{case.conversation}/replay"
        calls = (("read_log", {"path": "another.txt"}),) if case.chance(0.4) else ()
        body = {"parameters": {"tools": TOOLS}, "model": case.dice.choice(("big", "both"))}
        replayed = case.side.call("POST", path, body, Fate(kind="tools", calls=calls), case.fate())
        begun = parsed(replayed.text)[0] if replayed.ok else {}
        if isinstance(begun, dict) and "data" in begun:
            case.side.call("POST", path, {"replay_id": begun["data"].get("replay_id"), "move_head": True})
    look(case)


def documents(case: Case) -> None:
    """Documents that come attached, as files or by their ids, and questions about them."""
    case.more["context"] = {"max_input_tokens": case.dice.choice((1500, 2500, 4000))}
    if case.chance(0.3):
        case.more["store"] = False
    if case.chance(0.4):
        case.more["context"]["planning"] = "always"
    if case.chance(0.2):
        case.more["context"]["cite"] = True
    texts = [case.document(120) for _ in range(2)]
    if WORLDS[case.number % len(WORLDS)] == "keys" and case.chance(0.15):
        texts[0] = lamps(400)  # long enough to be indexed there
    for _ in range(case.dice.randint(2, 4)):
        options: Json = {}
        content: Any = case.question()
        way = case.dice.choice(("attached", "attached", "string", "data", "file", "file", "id", "none", "same"))
        text = case.dice.choice(texts)
        lines = [f"Lamp {n} is kept by Name{n * 7}x." for n in range(30)]
        if case.chance(0.3):
            case.model = case.dice.choice(("reads", "claude"))
        if way == "attached":
            options["attachments"] = [{"title": "Report", "content": text, "source": "drive"}]
        elif way == "string":
            options["attachments"] = [text, case.document()]
        elif way == "data":
            options["attachments"] = [{"file_data": _letter(), "filename": "lamps.docx"}]
        elif way == "file":
            file, name = (text.encode(), "lamps.md") if case.chance(0.4) else (pdf(lines), "lamps.pdf")
            if name == "lamps.pdf" and case.chance(0.5):
                file = _photos()
            kind = "application/pdf" if name.endswith("pdf") else "text/markdown"
            url = f"data:{kind};base64,{base64.b64encode(file).decode()}"
            content = [
                {"type": "text", "text": content},
                {"type": "file", "file": {"filename": name, "file_data": url}},
            ]
        elif way == "same":  # what is attached comes in the text, too
            options["attachments"] = [{"title": "Again", "content": text}]
            content += f"\n\n```\n{text}\n```\n\nWhat is new in it?"
        elif way == "id":
            kind = case.dice.choice(("lamps.txt", "lamps.pdf", "lamps.png"))
            files = {"lamps.txt": text.encode(), "lamps.pdf": _photos(), "lamps.png": pictured(["Lamp 7"], "PNG")}
            stored = case.side.upload(kind, files[kind])
            if stored.ok:
                named = {"file_id": stored.json["id"]}
                picture = {"type": "image_url", "image_url": named} if kind == "lamps.png" else None
                part = picture or {"type": "file", "file": named}
                if picture or case.chance(0.5):
                    content = [{"type": "text", "text": content}, part]
                else:
                    options["attachments"] = [named]
                case.get(f"/v1/files/{stored.json['id']}")
        case.ask(user(content), fates=(Fate(text=f"As it says [{ARTIFACT}, page 1], and [{ARTIFACT}]."),), **options)
    if case.conversation:
        found = case.get(f"/v1/conversations/{case.conversation}/attachments")
        for each in found.json.get("data", ())[:1]:
            case.get(f"/v1/conversations/{case.conversation}/attachments/{each['id']}?limit=50")
            if case.chance(0.5):
                case.side.call("DELETE", f"/v1/conversations/{case.conversation}/attachments/{each['id']}")
                case.ask(user(case.question()))
    look(case)


def agents(case: Case) -> None:
    """Agents of all types in one conversation."""
    made = case.side.call(
        "POST", "/v1/conversations", {"metadata": {"a": "b"}, "team_task": "Ship the lamp by Friday."}
    )
    case.conversation, case.goes_on = made.json.get("id"), "id"
    kinds = ("google-gemini", "chat", "claude-code", "openai-codex", "google-gemini", "plain", "unheard-of")
    for _ in range(case.dice.randint(3, 6)):
        agent: Json = {"id": case.dice.choice(("max", "sarah")), "type": case.dice.choice(kinds)}
        if case.chance(0.5):
            agent["instruction"] = "Be brief."
        if case.chance(0.3):
            agent["window"] = case.dice.randint(0, 3)
        said = [user(case.question(), name="ann")] if case.chance(0.7) else []
        options: Json = {"agent": agent}
        if case.chance(0.3):
            options["context"] = {"max_input_tokens": case.dice.choice((700, 1500))}
        if case.chance(0.2):
            options["attachments"] = [case.document()]
        if case.chance(0.15):
            said.append({"role": "assistant", "content": "Let me", "name": "max"})
        if case.chance(0.2):
            said.append(user(case.document(), pinned=True))
        calls = (("read_log", {"path": "a.txt"}),) if case.chance(0.3) else ()
        case.tools = TOOLS if calls else []
        kind = "echo" if agent["type"] == "google-gemini" and case.chance(0.7) else "answer"
        text = f"[NEXT:max] {case.question()} user: so it is"
        got = case.ask(*said, fates=(Fate(kind=kind, text=text, calls=calls),), **options)
        if results := case.answer_calls(got) if calls else []:
            case.ask(*results, agent=agent)
    look(case)


def fates(case: Case) -> None:
    """Calls that fail in all ways, before and after the answer has begun."""
    case.tools = TOOLS if case.chance(0.3) else []
    for _ in range(case.dice.randint(2, 5)):
        kind = case.dice.choice(
            (
                "refused",
                "refused",
                "refused",
                "overflow",
                "overflow",
                "policy",
                "cut",
                "reset",
                "silent",
                "failing",
                "page",
                "uncounted",
            )
        )
        status = case.dice.choice((400, 401, 403, 404, 409, 413, 422, 429, 429, 500, 502, 503, 529))
        headers = (("retry-after", case.dice.choice(("0", "7", "soon"))),) if status in (429, 503) else ()
        fate = Fate(kind=kind, status=status, headers=headers)
        case.model = "hasty" if kind == "silent" else case.dice.choice((*ASKED, "falls", "falls", "two"))
        more = case.dice.choice((0, 0, 1, 5))
        content = (
            case.question()
            if case.chance(0.6)
            else case.question() + "\n\n" + case.document() + "\n\n" + case.question()
        )
        options = case.options()
        if case.chance(0.1):
            case.headers = {"x-gateway-fallbacks": "off"}
        case.ask(user(content), fates=(fate,) * (1 + more), **options)
        case.headers = {}
        case.ask(user(case.question()), fates=(case.fate(),))
    look(case)


def leaving(case: Case) -> None:
    """Clients that do not wait for the end."""
    for _ in range(case.dice.randint(1, 3)):
        case.streams = case.chance(0.7)
        how = "middle" if case.streams and case.chance(0.7) else "early"
        fate = Fate(kind="stalled") if how == "middle" else Fate(kind="silent")
        case.model = case.dice.choice(("big", "small", "both", "claude"))
        case.ask(user(case.question()), fates=(fate,), leave=how, **case.options())
        case.ask(user(case.question()), fates=(case.fate(),))
    look(case)


def responses(case: Case) -> None:
    """Responses behind one another, compacted, read and deleted."""
    case.edge = "responses"
    case.model = case.dice.choice([each for each in ASKED if each != "claude"])
    case.goes_on = case.dice.choice(("previous", "previous", "id", "resend"))
    if case.chance(0.6):
        limit = case.dice.choice((1100, 1500, 3000))
        case.more["context_management"] = [{"type": "compaction", "compact_threshold": limit}]
    if case.chance(0.2):
        case.more["store"] = False
        case.more["include"] = ["reasoning.encrypted_content"]
    if case.chance(0.2):
        case.more["raw"] = {"truncation": case.dice.choice(("auto", "disabled"))}
    first: str | None = None
    for _ in range(case.dice.randint(2, 5)):
        case.ask(user(case.question() + "\n\n" + case.document(30)), fates=(case.fate(),))
        first = first or case.answer
    if case.answer and case.chance(0.6):
        case.get(f"/v1/responses/{case.answer}")
        case.get(f"/v1/responses/{case.answer}?stream=true")
        case.get(f"/v1/responses/{case.answer}/input_items")
    if case.answer and case.chance(0.5):
        made = case.side.call(
            "POST", "/v1/responses/compact", {"model": case.model, "previous_response_id": case.answer}
        )
        if made.ok:
            items = [*made.json["output"], user(case.question())]
            case.side.call("POST", "/v1/responses", {"model": case.model, "input": items})
    if first and case.chance(0.5):
        case.answer = first
        case.ask(user("Another way: " + case.question()))
        case.side.call("DELETE", f"/v1/responses/{first}")
        case.ask(user(case.question()))
    look(case)


def edits(case: Case) -> None:
    """Messages whose client edits the context, counts, caches and thinks."""
    case.edge, case.tools = "messages", TOOLS
    case.goes_on = "resend"
    case.model = case.dice.choice(("claude", "claude", "small", "both"))
    edit: Json = {"type": "clear_tool_uses_20250919"}
    if case.chance(0.7):
        edit["trigger"] = {"type": "input_tokens", "value": case.dice.choice((800, 1500, 3000))}
    if case.chance(0.4):
        edit["keep"] = {"type": "tool_uses", "value": 1}
    kind = case.dice.random()
    if kind < 0.35:
        edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": case.dice.choice((800, 1500))}}
        if case.chance(0.3):
            edit["pause_after_compaction"] = True
    found = [{"type": "clear_thinking_20251015"}, edit] if case.chance(0.3) and kind >= 0.35 else [edit]
    if case.chance(0.85):
        case.more["context_management"] = {"edits": found}
    if case.chance(0.4):
        case.more["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        case.more["max_tokens"] = 2000
    if case.chance(0.4):
        case.headers = {"x-claude-code-session-id": f"00000000-0000-4000-8000-{case.number:012d}"}
    said = [user(case.question())]
    for _ in range(case.dice.randint(3, 7)):
        calls = (("read_log", {"path": f"log-{case.dice.randint(1, 5)}.txt"}),)
        thought = "I look." if "thinking" in case.more else None
        got = case.ask(*said, fates=(Fate(kind="tools", calls=calls, thought=thought), case.fate()))
        said = case.answer_calls(got, 40) or [user(case.question())]
    body = case.worded({"model": case.model, "messages": [*case.history, *said], "tools": TOOLS})
    if case.edge == "messages":
        case.side.call(
            "POST",
            "/v1/messages/count_tokens",
            {name: body[name] for name in body if name not in ("max_tokens", "stream")},
        )
    look(case)


def recall(case: Case) -> None:
    """Models that read what their windows leave out."""
    case.more["context"] = {"recall": True, "max_input_tokens": case.dice.choice((1200, 2000, 3000))}
    case.tools = TOOLS if case.chance(0.4) else []
    if case.chance(0.2):
        case.more["context"]["cite"] = True
    for _ in range(case.dice.randint(2, 5)):
        options: Json = {"attachments": [case.document(100)]} if case.chance(0.4) else {}
        rounds = case.dice.randint(0, 4)
        wanted: list[Json] = [{"question": case.question()}, {"artifact_id": ARTIFACT}, {}, {"artifact_id": "art_none"}]
        wanted.append({"artifact_id": ARTIFACT, "question": case.question()})
        said = [Fate(kind="recall", calls=(("recall", case.dice.choice(wanted)),)) for _ in range(rounds)]
        if rounds and case.tools and case.chance(0.3):
            said[-1] = Fate(kind="recall", calls=(*said[-1].calls, ("read_log", {"path": "a.txt"})))
        if case.chance(0.1):
            said.append(Fate(kind="refused", status=500))
        got = case.ask(user(case.question()), fates=(*said, case.fate()), **options)
        if results := case.answer_calls(got):
            case.ask(*results)
    look(case)


def things(case: Case) -> None:
    """The memory of things."""
    case.more["user"] = "ann"
    case.tools = TOOLS
    for n in range(case.dice.randint(2, 4)):
        noted = {"type": "workflow", "id": f"wf_{n}", "name": f"Task{n} Management", "action": "created"}
        memory: Json = {"scope": case.dice.choice(("user", "conversation"))}
        if case.chance(0.6):
            memory["remember"] = [noted]
        calls = (("create_workflow", {"name": f"Task{n}"}),)
        got = case.ask(user(f"Update my task{n} workflow."), fates=(Fate(kind="tools", calls=calls),), memory=memory)
        if said := case.answer_calls(got, 9):
            case.ask(*said, memory=memory)
    case.get("/v1/memory?user=ann")
    if case.conversation:
        path = f"/v1/conversations/{case.conversation}/memory"
        found = case.get(path)
        case.get(f"{path}?query=task")
        case.side.call("POST", path, {"type": "file", "id": "a.txt", "name": "The log"})
        for each in found.json.get("data", ())[:1]:
            case.side.call("DELETE", f"{path}/{each['id']}")
        case.ask(user("Show my task1 workflow."), memory={})
    look(case)


def repeats(case: Case) -> None:
    """Requests with an Idempotency-Key, sent again."""
    case.goes_on = "id"
    for n in range(case.dice.randint(1, 3)):
        case.headers = {"idempotency-key": f"key-{case.number}-{n}"}
        said = user(case.question())
        conversation, fate = case.conversation, case.fate() if case.chance(0.7) else Fate(kind="refused", status=500)
        options: Json = {"store": False} if case.chance(0.15) else {}
        case.ask(said, fates=(fate,), **options)
        case.conversation = conversation
        case.ask(said, **options)
        if case.chance(0.4):
            case.ask(user("something else"), **options)
        case.headers = {}
    look(case)


def stored(case: Case) -> None:
    """What is kept is read, changed, moved, run anew and deleted."""
    case.goes_on, case.edge = "id", case.dice.choice(EDGES)
    items = [{"type": "message", "role": "user", "content": "A first word."}]
    made = case.side.call("POST", "/v1/conversations", {"items": items, "metadata": {"n": str(case.number)}})
    case.conversation = made.json.get("id")
    if case.chance(0.4):
        case.more["context"] = {"max_input_tokens": case.dice.choice((600, 1500))}
    for _ in range(case.dice.randint(2, 5)):
        case.ask(user(case.question() + ("\n\n" + case.document(20) if case.chance(0.4) else "")), fates=(case.fate(),))
    look(case, everything=True)
    path = f"/v1/conversations/{case.conversation}"
    call = case.side.call
    call("POST", path, {"metadata": {"changed": "yes"}})
    found = case.get(f"{path}/items?order=asc&limit=100").json.get("data", [])
    if found and case.chance(0.6):
        one = case.dice.choice(found)["id"]
        call(case.dice.choice(("POST", "DELETE", "GET")), f"{path}/items/{one}", {"pinned": True})
    call(
        "POST",
        f"{path}/items",
        {"items": [{"type": "message", "role": "user", "content": "Also this.", "pinned": True}]},
    )
    case.ask(user(case.question()), fates=(case.fate(),))
    if case.chance(0.4):
        call("POST", f"{path}/replay", {"dry_run": True})
        call("POST", f"{path}/replay", {"from_turn": 1, "to_turn": 2, "move_head": case.chance(0.5)}, case.fate())
        case.ask(user(case.question()))
    exported = case.get(f"{path}/export")
    if exported.ok and case.chance(0.4):
        call("POST", "/v1/conversations/import", exported.json)
    if case.last.ok and case.chance(0.4):
        name = case.last.headers.get("x-request-id")
        call("DELETE", f"/v1/chat/completions/{name}")
        case.get(f"/v1/chat/completions/{name}")
    if case.chance(0.4):
        call("DELETE", case.dice.choice((path, f"{path}/items")))
        case.ask(user(case.question()))
        case.get(path)


def keys(case: Case) -> None:
    """Keys with budgets, limits and models of their own."""
    spends = case.dice.choice((0.002, 0.01, 0.05))
    body: Json = {"tenant": f"team-{case.number}", "name": "Ann", "project": "lamps"}
    body["budgets"] = [{"usd": spends, "period": "total", "hard": case.chance(0.7)}]
    if case.chance(0.4):
        body["models"] = ["small", "both", "gpt-4o-mini"]
    if case.chance(0.4):
        body["context"] = {"mode": "simple", "max_input_tokens": 2000}
    made = case.side.call("POST", "/v1/gateway/keys", body, key=ADMIN)
    case.side.key = made.json.get("key", case.side.key)
    for _ in range(case.dice.randint(2, 6)):
        case.ask(user(case.question() + "\n\n" + case.document(40)), fates=(case.fate(),), **case.options())
        if case.chance(0.2):
            case.model = case.dice.choice(ASKED)
    case.get("/v1/gateway/keys/self")
    if made.ok and case.chance(0.3):
        case.side.call("DELETE", f"/v1/gateway/keys/{made.json['id']}", key=ADMIN)
        case.ask(user(case.question()))
    look(case)


def refused(case: Case) -> None:
    """Requests that nobody can answer."""
    bad: tuple[Json, ...] = (
        {"model": "nobody"}, {"context": {"mode": "loud"}}, {"context": {"max_input_tokens": 1}}, {"attachments": [{}]},
        {"conversation": "conv_none"}, {"agent": {"type": "chat"}}, {"memory": {"scope": "user"}}, {"messages": []},
        {"max_tokens": 0}, {"context": {"dry_run": True, "unknown": 1}}, {"stream": "yes"},
        {"context": {"max_input_tokens": 30}},
    )  # fmt: skip
    for change in case.dice.sample(bad, 4):
        body = {"model": case.model, "max_tokens": 50, "messages": [user(case.question())]}
        body = case.worded(body)
        names = {"messages": "input"} if case.edge == "responses" else {}
        case.side.call(
            "POST", f"/v1/{PATHS[case.edge]}", body | {names.get(name, name): value for name, value in change.items()}
        )
    orphan = {"role": "tool", "tool_call_id": "call_none", "content": "x"}
    case.side.call("POST", "/v1/chat/completions", {"model": "small", "messages": [user("a"), orphan]})
    case.side.call("POST", "/v1/chat/completions", {"model": "own", "messages": [user("by my own key")]})


def relayed(case: Case) -> None:
    """Calls of models that are not managed, and paths that nobody serves."""
    for path in case.dice.sample([*RELAYED, "embeddings", "audio/speech", "threads"], 3):
        model = "embed" if path == "embeddings" else case.dice.choice(("small", "unpriced", "nobody"))
        body = {"model": model, "prompt": case.question(), "input": case.question(), "max_tokens": 9}
        case.side.call("POST", f"/v1/{path}", body)
    case.get("/v1/models")
    case.get("/v1/models/small")
    case.side.call("POST", "/api/v1/chat", {"message": case.question(), "model": "small"})


def look(case: Case, *, everything: bool = False) -> None:
    """Reads what is told of the conversation and of its bills."""
    if not case.conversation:
        return
    path = f"/v1/conversations/{case.conversation}"
    pages: tuple[str, ...] = (
        path,
        f"{path}/items?order=asc",
        f"{path}/context",
        f"{path}/turns",
        f"{path}/turns/1",
        f"{path}/attachments",
    )
    pages += (f"/v1/chat/completions?conversation={case.conversation}",)
    for each in pages if everything else case.dice.sample(pages, 2):
        case.get(each)


SCENES: dict[str, tuple[Callable[[Case], None], int]] = {
    "talk": (talk, 10), "loop": (loop, 8), "documents": (documents, 5), "agents": (agents, 3), "fates": (fates, 5),
    "leaving": (leaving, 2), "responses": (responses, 4), "edits": (edits, 4), "recall": (recall, 3),
    "things": (things, 2), "repeats": (repeats, 1), "stored": (stored, 3), "keys": (keys, 2), "refused": (refused, 1),
    "relayed": (relayed, 1),
}  # fmt: skip
"""What cases do, and how often each comes."""


def scene(seed: int, number: int, only: str | None) -> str:
    """What the case of that number does."""
    weights = [weight for _, weight in SCENES.values()]
    return only or random.Random(f"scene {seed}/{number}").choices([*SCENES], weights)[0]


def play(side: Side, seed: int, number: int, name: str) -> None:
    """Plays one case on one side; what came of it are the side's `entries`."""
    world = "keys" if name == "keys" else WORLDS[number % len(WORLDS)]
    side.begin(f"c{seed}-{number}", world, f"sk-case-{seed}-{number}")
    if world == "keys":
        made = side.call("POST", "/v1/gateway/keys", {"tenant": f"tenant-{number}"}, key=ADMIN)
        side.key = made.json.get("key", side.key)
    try:
        SCENES[name][0](Case(side, seed, number))
    except Exception as error:  # an answer that the case cannot go on from; the other side tells whether it should
        side.entries.append(Entry(f"the case broke off: {error!r}", [], [], {}))
