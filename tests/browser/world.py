"""What the pages show in these tests: conversations of every kind, made by requests as clients send them."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support import worked_example
from tests.support.answers import assistant, function_tool, ok, system, tool_call, tool_result, user
from tests.support.documents import lamps
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, Shown
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply
from tests.support.web_page import PageClient

Json = dict[str, Any]
SCRIPT = "<script>window.ran = 1; alert('ran')</script><img src=x onerror=\"window.ran = 2; alert('ran')\">"
BREAKS_OUT = (
    "\"' --></textarea></script></pre></details><svg onload=\"window.ran = 3; alert('ran')\"><style>*{display:none}"
)
MARKDOWN = "[a link](javascript:window.ran=4) ![a picture]({elsewhere}/picture.png) <{elsewhere}/auto>"
TURNED = "right to left: \u202egnp.exe\u202c, isolated: \u2066abc\u2069, zero width: a\u200bb"
ANSI = "\x1b[31mred\x1b[0m \x1b]8;;http://example.invalid\x07link\x1b]8;;\x07 \x00 \x7f"
LONG_WORD = "w" * 3000
MEGABYTES = 5
MANY = 60


@dataclass
class World:
    """A gateway with something to look at; `conversations` and `requests` by the name of what they show."""

    gateway: GatewayProcess
    upstream: MockUpstream
    conversations: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    """Of pages that a test opens, by the name of what they show."""
    cookies: dict[str, str] = field(default_factory=dict)
    """Of somebody who has logged in, where that is needed."""

    @property
    def url(self) -> str:
        """Where the gateway is: `http://127.0.0.1:PORT`."""
        return self.gateway.url

    def ask(self, name: str, body: Json, key: str = "") -> Json:
        """Sends a chat request and keeps the ids of its answer."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer = ok(httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60))
        return self._kept(name, answer)

    def refuse(self, body: Json, status: int, key: str = "") -> str:
        """Sends a chat request that is answered with this error; returns the request's id."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.headers["x-request-id"]

    def _kept(self, name: str, found: Json) -> Json:
        bill = found["response_metadata"]
        self.requests[name] = bill["request_id"]
        if bill["conversation_id"]:
            self.conversations[name] = bill["conversation_id"]
        return found


def hostile(elsewhere: str) -> str:
    """Text that would do something if it were taken for markup, for a link, or for a terminal's commands."""
    return "\n".join((SCRIPT, BREAKS_OUT, MARKDOWN.format(elsewhere=elsewhere), TURNED, ANSI, LONG_WORD))


def provider(upstream: MockUpstream) -> Callable[..., Any]:
    """The scripted upstream: the worked example's planner and answers, and what a test asks for by its question."""

    def answered(body: Json) -> Reply | None:
        question = str(body["messages"][-1].get("content"))
        said = str(body["messages"])
        if "STALL" in question:
            return Reply(text="The first words came, and then nothing more did.", stall_after=5)
        if "BREAK" in question:
            return Reply(status=500, json={"error": {"message": "The model broke: " + "no more memory, " * 20}})
        if "SLOWLY" in question:
            return Reply(text="One word after the other, as a person would say it. " * 6, chunk_delay=0.05)
        if "HOSTILE" in said:
            return Reply(text=hostile(upstream.url), extra={"service_tier": SCRIPT})
        if "4411" in question:
            return Reply(text=worked_example.ANSWER)
        if "weather" in question and body.get("tools"):
            return Reply(tool_calls=[("get_weather", {"place": "Brennick"})])
        return None

    def plan(artifacts: list[Shown]) -> Reply:
        lowered = [Shown(a.artifact_id, a.source.lower(), a.preview) for a in artifacts]
        if any("contract" in each.source for each in lowered) and len(lowered) > 1:
            return worked_example.planned(lowered)
        return Reply(text="no plan")

    scripted = InternalModels(plan, lambda text: Reply(text=worked_example.SUMMARY), answered)
    handler: Callable[..., Any] = worked_example.counted(scripted)
    return handler


def populate(world: World) -> None:
    """Conversations of every kind, a request that failed, and one that was refused."""
    planned(world)
    failed(world)
    refused(world)
    long(world)
    branched(world)
    partial(world)
    with_hostile_content(world)
    many(world)
    huge(world)


def planned(world: World) -> None:
    """The worked example: three artifacts that do not fit, a plan, and a further question."""
    first = world.ask("planned", worked_example.request() | {"user": "ada"})
    world.ask("planned, again", worked_example.follow_up(first) | {"user": "ada"})


def failed(world: World) -> None:
    """An upstream's own fault, told at length."""
    body = {"model": "gpt-4o", "user": "lin", "messages": [user("BREAK, please.")]}
    world.requests["failed"] = world.refuse(body, 500)


def refused(world: World) -> None:
    """Bad input, which has no bill."""
    world.refuse({"model": "gpt-4o", "messages": [], "temperature": "warm"}, 400)


def long(world: World) -> None:
    """Fifteen turns; the first has a tool step that is restored in all others, and old turns leave."""
    tools = [function_tool("get_weather", parameters={"type": "object"})]
    question: Json = user("What is the weather like at Brennick?")
    model = {"model": "small", "tools": tools, "user": "grace"}
    first = world.ask("long", {**model, "messages": [question]})
    call = first["choices"][0]["message"]
    result = tool_result(call["tool_calls"][0]["id"], worked_example.reports()[:6000])
    same = {"conversation": first["conversation"]["id"]}
    world.ask("long", {"model": "small", "user": "grace", "messages": [result], **same})
    for number in range(2, 16):
        text = f"Question {number}: and what of week {number}? " + "Tell it with all that matters. " * number
        world.ask(f"long {number}", {"model": "small", "user": "grace", "messages": [user(text)], **same})
    world.requests["long"] = world.requests["long 15"]


def branched(world: World) -> None:
    """A question that was edited twice, and one that was answered anew."""
    first: Json = user("Name a river.")
    answer = world.ask("branched", {"model": "gpt-4o", "messages": [first]})
    told = [first, answer["choices"][0]["message"]]
    for text in ("How long is it?", "How deep is it?", "Who lives beside it?"):
        resent = [*told, user(text)]
        further = world.ask(
            "branched", {"model": "gpt-4o", "messages": resent, "conversation": answer["conversation"]["id"]}
        )
        if text.startswith("How deep"):
            more = [*resent, further["choices"][0]["message"], user("In feet?")]
            world.ask(
                "branched", {"model": "gpt-4o-mini", "messages": more, "conversation": answer["conversation"]["id"]}
            )


def partial(world: World) -> None:
    """A stream whose client leaves after the first words."""
    body = {"model": "gpt-4o", "messages": [user("STALL, please.")], "stream": True}
    with httpx.stream("POST", f"{world.url}/v1/chat/completions", json=body, timeout=30) as answer:
        world.requests["partial"] = answer.headers["x-request-id"]
        world.conversations["partial"] = answer.headers["x-conversation-id"]
        with contextlib.suppress(StopIteration):
            lines = answer.iter_lines()
            for _ in range(6):
                next(lines)


def with_hostile_content(world: World) -> None:
    """Everything that a client may name, each with text that must stay text."""
    text = hostile(world.upstream.url)
    calls = [tool_call("call_<b>1</b>", "a_tool", '{"<b>": "</script>"}')]
    world.ask(
        "hostile",
        {
            "model": "gpt-4o",
            "user": SCRIPT,
            "metadata": {"<i>key</i>": SCRIPT},
            "messages": [
                system(f"HOSTILE {text}"),
                user(f"HOSTILE question: {text}"),
                assistant(None, tool_calls=calls),
                tool_result("call_<b>1</b>", (text + "\n") * 6),
            ],
            "attachments": [
                {"title": f"{SCRIPT} \u202etitle", "content": (text + "\n\n") * 8, "source": f"javascript:{SCRIPT}"}
            ],
            "context": {"session": f"session {SCRIPT}"[:120], "max_input_tokens": 16000},
        },
    )


def many(world: World) -> None:
    """More conversations than a page shows."""
    for number in range(MANY):
        messages = [user(f"Small question number {number}: what is {number} times {number}?")]
        world.ask("many", {"model": "gpt-4o-mini", "user": f"user {number % 7}", "messages": messages})


def huge(world: World) -> None:
    """A message of five megabytes, with markup at its end."""
    text = "0123456789 lorem ipsum dolor sit amet\n" * (MEGABYTES * 2**20 // 38) + SCRIPT
    world.ask("huge", {"model": "bench", "user": "bench", "messages": [user(text)]})


def administered(world: World, key: str) -> None:
    """Keys of each state, files, and a large document; whoever holds `key` is logged in."""
    with PageClient(world.url) as client:
        assert client.log_in(key).status_code == 303
        world.cookies |= dict(client.client.cookies)
    with httpx.Client(base_url=world.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
        budgets = [{"usd": 1e-6, "period": "month", "hard": False}, {"usd": 50, "period": "day"}]
        limits = {"rpm": 60, "tpm": 100_000, "concurrent": 4}
        spending: Json = {"tenant": "acme", "name": SCRIPT[:80], "owner": LONG_WORD[:200]}
        spending |= {"budgets": budgets, "limits": limits}
        made = client.post("/v1/gateway/keys", json=spending).raise_for_status().json()
        world.paths["key"] = f"/ui/admin/keys/{made['id']}"
        used_up = [{"usd": 1e-9, "period": "month"}]
        for name, more in (("revoked", {}), ("unused", {}), ("lost", {}), ("spent", {"budgets": used_up})):
            wanted = {"tenant": "others", "name": name, **more}
            other = client.post("/v1/gateway/keys", json=wanted).raise_for_status().json()
            world.paths[f"key, {name}"] = f"/ui/admin/keys/{other['id']}"
        world.refuse({"model": "gpt-4o", "messages": [user("Too dear?")]}, 429, other["key"])
        client.delete(world.paths["key, revoked"].replace("/ui/admin", "/v1/gateway")).raise_for_status()
    with httpx.Client(base_url=world.url, headers={"authorization": f"Bearer {made['key']}"}, timeout=60) as client:
        for name, text in (("notes.txt", b"The keeper is Ada. " * 50), ("long name " * 12 + ".pdf", b"%PDF broken")):
            files: Any = {"file": (name, text), "purpose": (None, "user_data")}
            kept = client.post("/v1/files", files=files).raise_for_status().json()["id"]
            world.paths["file"] = f"/ui/admin/files/{kept}"
    asked: Json = {"model": "gpt-4o", "messages": [user("Who is the keeper of lamp 1999?")]}
    document = {"title": "Lamps", "content": lamps(2000, 90)}
    large = {"attachments": [document], "context": {"max_input_tokens": 2000}}
    world.ask("large", {**asked, **large}, made["key"])
