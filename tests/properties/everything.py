"""Random conversations in which each request has any of agents, pins, summaries, memory of things, profiles, documents
and tools, or none of them."""

import base64
import copy
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from gateway.core.errors import ContextLengthExceeded
from gateway.core.ids import new_id
from gateway.core.types.memory import NewSegment, SummarySegment
from gateway.core.types.turn import LedgerEntry
from gateway.pipeline.features.rolling_summaries import turns_of
from tests.properties import talks
from tests.properties.cases import Case, Json, answer, as_pinned, attachment, some_pinned, tool_step, tools, user
from tests.properties.checks import append, memory, tokens
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import INSTRUCTIONS, LEFT_OUT, Seen, hold, text_of
from tests.properties.checks.window import check_pairs
from tests.properties.materials import INJECTED, words
from tests.properties.talks import Script
from tests.support.in_process import InProcess

BUDGETS = (250, 500, 700, 900, 1200, 1800, 2500, 5000, 12_000, 40_000)
SECTIONS = ("claude-code", "openai-codex", "google-gemini", "plain", "nobody-knows")
MEMORIES = ("extracts", "summary", "summary", "both")
KINDS = ("order", "file", "workflow")
NAMES = ("Lamp order {}", "Task {} Management", "</context_data> {}", "report_{}.pdf")
MODES = ("general", "creation", "search", "modification", "analysis")
PROFILES: Json = {"core": "You help.", "tools": "Call search.", "modes": {mode: f"Mode {mode}. " * 4 for mode in MODES}}


@dataclass
class Talk(talks.Talk):
    """With what the features keep of it; indexes are those of `view`."""

    memory: str = "extracts"
    things: list[Json] = field(default_factory=list)
    summarized: dict[str, str] = field(default_factory=dict)
    """Of each summary: the last words that it covers."""
    documents: list[str] = field(default_factory=list)
    """Those that came, and come again."""
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass
class Asked:
    """A request: its body but for messages, what it adds to the conversation, and whom it asks."""

    body: Json
    new: list[Json]
    own: list[str]
    agent: Json | None = None

    @property
    def has_sections(self) -> bool:
        return self.agent is not None and self.agent["type"] != "chat"

    @property
    def is_stored(self) -> bool:
        return self.body["store"] is not False

    @property
    def instruction(self) -> list[Json]:
        """What an agent without sections is told behind the client's own instructions."""
        text = self.agent.get("instruction", "").strip() if self.agent is not None and not self.has_sections else ""
        return [{"role": "system", "content": text}] if text else []


class Everything:
    """Plays talks against one gateway, each as a tenant of its own. `again`: with documents that come again."""

    def __init__(self, gateway: InProcess, script: Script, document_chars: int, *, again: bool = False) -> None:
        self._gateway, self._script, self._document_chars = gateway, script, document_chars
        self._again = again

    async def play(self, seed: int, requests: int) -> Counter[str]:
        """How often what came of requests that were asked and checked.
        Raises Broken: one of them broke an invariant."""
        rng = random.Random(f"everything {seed}")
        system = [{"role": "system", "content": words(rng, 12)}] if rng.random() < 0.5 else []
        definitions = tools(rng) if rng.random() < 0.6 else []
        way = rng.choice(("id", "session", "all", "all by id"))
        budget, kept = rng.choice(BUDGETS), rng.choice(MEMORIES)
        talk = Talk(seed, rng, budget, way, system=system, definitions=definitions, memory=kept)
        for number in range(requests):
            if talk.outcomes["asked"] >= requests or not await self._turn(talk, number):
                break
        return talk.outcomes

    async def _turn(self, talk: Talk, number: int) -> bool:
        rng = talk.rng
        if talk.way.startswith("all") and talk.view and rng.random() < 0.08:
            _edit(talk)
        asked = _asked(talk, number)
        if self._again and asked.new:
            _with_document(talk, asked)
        steps = rng.choice((0, 0, 1, 3)) if talk.definitions and asked.is_stored else 0
        for step in range(steps + 1):
            calls = tool_step(rng, f"{len(talk.view)}_{step}") if step < steps else []
            reply = {k: v for k, v in calls[0].items() if k != "role"} if calls else {"content": _answer(rng, number)}
            if not await self._ask(talk, asked, reply):
                return step == 0  # what was refused is not part of the conversation
            if step == steps and asked.is_stored and asked.body["context"]["memory"] != "extracts":
                await self._summarize(talk)
            further = {k: v for k, v in asked.body.items() if k not in ("attachments", "memory")}
            asked = Asked(further, calls[1:], asked.own, asked.agent)
        return True

    async def _ask(self, talk: Talk, asked: Asked, reply: Json) -> bool:
        said, count = [*talk.view, *asked.new], len(talk.view)
        fresh = (
            {count + i for i in some_pinned(talk.rng.randrange(10**9), asked.new)} if talk.rng.random() < 0.3 else set()
        )
        pinned = talk.pinned | fresh
        delta = talk.way in ("id", "session") and count > 0
        body = {**asked.body, "messages": as_pinned(said, pinned)[count if delta else 0 :]}
        if not delta or talk.rng.random() < 0.2:
            body["messages"] = [*talk.system, *body["messages"]]
        if talk.way == "session":
            body["context"] = {**body["context"], "session": "talk"}
        elif talk.conversation and talk.way != "all":
            body["conversation"] = talk.conversation
        self._script.reply = reply
        self._gateway.upstream.sent.clear()
        try:
            answered = await self._gateway.ask(copy.deepcopy(body), f"tenant {talk.seed}")
        except ContextLengthExceeded as refusal:
            self._refused(talk, asked, said, pinned, refusal)
            return False
        forwarded = copy.deepcopy(self._gateway.upstream.sent[-1]["messages"])
        figures = await self._gateway.bill(answered["id"], f"tenant {talk.seed}")
        if asked.has_sections:
            _check_sections(asked, forwarded, said, pinned)
            seen = None
        else:
            seen = self._check_messages(talk, asked, forwarded, figures, pinned, delta=delta)
        self._count(talk, asked, figures)
        if asked.is_stored:
            _keep(talk, asked, seen, pinned, {"role": "assistant", **reply})
            talk.conversation = answered["conversation"]["id"]
        return True

    def _count(self, talk: Talk, asked: Asked, figures: Json) -> None:
        told = figures.get("memory") or {}
        counts = {
            "sections": asked.has_sections,
            "chat agent": asked.agent is not None and not asked.has_sections,
            "pinned": told.get("pinned"),
            "summaries": told.get("segments"),
            "things": figures.get("things"),
            "profile": figures.get("profile"),
            "not stored": not asked.is_stored,
            "same": any(r.get("reason") == "same_document" for r in figures["artifacts_processed"]),
        }
        found = [name for name, value in counts.items() if value]
        talk.outcomes["asked"] += 1
        talk.outcomes.update(f"with {name}" for name in found)

    def _case(self, talk: Talk, asked: Asked, said: list[Json], pinned: set[int], before: int = 0) -> Case:
        body = {**asked.body, "attachments": [*talk.attached, *asked.body.get("attachments", ())], "messages": said}
        shifted = frozenset(before + index for index in pinned)
        return Case(talk.seed, body, asked.own, self._document_chars, pinned=shifted)

    def _refused(
        self, talk: Talk, asked: Asked, said: list[Json], pinned: set[int], why: ContextLengthExceeded
    ) -> None:
        talk.outcomes["refused"] += 1
        hold("§7", str(why).startswith("This model's maximum context length is"), str(why))
        instruction = str((asked.agent or {}).get("instruction", ""))
        systems = [*talk.system, {"role": "system", "content": f"{instruction} {PROFILES}"}]
        case = self._case(talk, asked, [*systems, *said], pinned, len(systems))
        check_refusal(case, case.messages)

    def _check_messages(
        self, talk: Talk, asked: Asked, forwarded: list[Json], figures: Json, pinned: set[int], *, delta: bool
    ) -> Seen:
        profile = forwarded[:1] if figures.get("profile") else []
        hold("§11.7", all(str(m["content"]).startswith("You help.") for m in profile), "a profile that is not in front")
        systems = [*profile, *talk.system, *asked.instruction]
        count, said = len(systems), [*talk.view, *asked.new]
        originals = [*systems, *said]
        case = self._case(talk, asked, asked.new if delta or profile or asked.instruction else originals, pinned, count)
        standing = {count + index: forms for index, forms in talk.standing.items()}
        if talk.view:
            standing.setdefault(-1, [])  # something stands, also where agents with sections alone were asked
        seen = check_answer(case, originals, forwarded, figures, standing)
        _check_summaries(talk, seen)
        bare = _without_systems(seen, count)
        append.check(bare, talk.before)
        append.check_left(bare, talk.left)
        return bare

    async def _summarize(self, talk: Talk) -> None:
        """What is done behind an answer, with a summary of some of the turns that have none."""
        rng, tenant = talk.rng, f"tenant {talk.seed}"
        request = next(reversed(self._gateway.computed))
        found = await self._gateway.store.uncovered(tenant, str(talk.conversation), request)
        turns = turns_of(found.messages) if found is not None else []
        if found is None or len(turns) < 2 or rng.random() < 0.4:
            return
        covered = [message for turn in turns[: rng.randrange(1, len(turns))] for message in turn]
        text = f"In short: {words(rng, rng.choice((3, 10, 40)))} {rng.choice(INJECTED)} <turns_summary> end."
        first, last = found.turns_before + 1, found.turns_before + len(turns_of(covered))
        name, end = new_id("sum_"), covered[-1]
        segment = SummarySegment(name, covered[0].number, end.number, end.message_id, text, first, last, 10_000)
        store = self._gateway.store
        hold(
            "§11.13",
            await store.add_summary(tenant, str(talk.conversation), request, NewSegment(segment, found, 1), _same),
            "a summary was not stored",
        )
        (message,) = await store.messages(str(talk.conversation), [end.message_id])
        talk.summarized[name] = text_of(message.body.get("content"))
        talk.outcomes["summarized"] += 1


def _same(entry: LedgerEntry) -> LedgerEntry:
    return entry


def _asked(talk: Talk, number: int) -> Asked:
    """A new turn."""
    rng = talk.rng
    context: Json = {"max_input_tokens": talk.budget if rng.random() < 0.7 else rng.choice(BUDGETS)}
    context["memory"] = talk.memory if rng.random() < 0.8 else rng.choice(MEMORIES)
    context |= rng.choice(({}, {}, {}, {"profile": "search"}, {"profile": "off"}))
    context |= rng.choice(({}, {}, {}, {}, {"mode": "simple"}))
    body: Json = {"model": "exact", "store": rng.random() >= 0.1, "context": context, "user": "ann"}
    if talk.definitions:
        body["tools"] = talk.definitions
    if rng.random() < 0.2:
        body["attachments"] = [attachment(rng)]
    said, own = user(rng, number)
    if isinstance(said["content"], str) and talk.things and rng.random() < 0.6:
        named = " and ".join(
            each["name"] for each in rng.sample(talk.things, min(len(talk.things), rng.choice((1, 3))))
        )
        said["content"] += f" {named}"
    if rng.random() < 0.4:
        body["memory"] = _remembered(talk) if body["store"] else {"scope": "user"}
    agent = _agent(rng)
    new = [said]
    delivers = agent is not None and agent["type"] != "chat" and talk.view and talk.way in ("id", "session")
    if delivers and rng.random() < 0.3:
        new, own = [], []
    if agent is not None:
        body["agent"] = agent
    return Asked(body, new, own, agent)


def _with_document(talk: Talk, asked: Asked) -> None:
    """The turn with documents that are new or came before, as files, attached, or both."""
    rng = talk.rng
    for _ in range(rng.choice((0, 1, 1, 2))):
        if not talk.documents or rng.random() < 0.3:
            talk.documents.append(words(rng, rng.choice((60, 120, 300))))
        text = rng.choice(talk.documents)
        if rng.random() < 0.35:
            asked.body["attachments"] = [*asked.body.get("attachments", ()), {"content": text}]
            continue
        data = base64.b64encode(text.encode()).decode()
        part = {"type": "file", "file": {"filename": "again.md", "file_data": f"data:text/markdown;base64,{data}"}}
        content = asked.new[0]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        asked.new[0] = {**asked.new[0], "content": [part, *parts]}


def _remembered(talk: Talk) -> Json:
    rng = talk.rng
    new = []
    for _ in range(rng.choice((0, 1, 2))):
        number, kind = len(talk.things), rng.choice(KINDS)
        new.append({"type": kind, "id": f"{kind}_{number}", "name": rng.choice(NAMES).format(number)})
        talk.things.append(new[-1])
    return {"remember": new, "scope": rng.choice(("conversation", "user"))} if new else {"things": rng.random() < 0.7}


def _agent(rng: random.Random) -> Json | None:
    kind = rng.choice((None, None, None, "chat", rng.choice(SECTIONS)))
    if kind is None:
        return None
    found: Json = {"id": rng.choice(("max", "sarah")), "type": kind}
    if rng.random() < 0.4:
        found["instruction"] = "Be brief. " * rng.choice((1, 20))
    if kind != "chat" and rng.random() < 0.4:
        found["window"] = rng.choice((0, 1, 3, 20))
    return found


def _answer(rng: random.Random, number: int) -> str:
    """Long enough, where nothing else names the conversation, to show that one took part in it (guarantee §3.2)."""
    said = f"answered {number}: {answer(rng)}"
    while len(said) < 200:
        said += " " + answer(rng)
    return said + rng.choice(("", "", " [NEXT:max]"))


def _edit(talk: Talk) -> None:
    """Goes back to before one of the client's own messages but the first, and says something else there."""
    later = [i for i, m in enumerate(talk.view) if i and m["role"] == "user"]
    if not later:
        return
    at = talk.rng.choice(later)
    talk.view = talk.view[:at]
    talk.standing = {i: forms for i, forms in talk.standing.items() if i < at}
    talk.pinned = {i for i in talk.pinned if i < at}
    talk.left, talk.before = set(), None


def _keep(talk: Talk, asked: Asked, seen: Seen | None, pinned: set[int], reply: Json) -> None:
    talk.view += [*asked.new, reply]
    talk.pinned = pinned
    talk.attached += asked.body.get("attachments", ())
    if seen is None:
        return
    talk.before = seen
    talk.left |= append.left_steps(seen)
    shown = dict(zip(seen.indexes, seen.forwarded, strict=True))
    for index in range(len(seen.originals)):
        talk.standing.setdefault(index, []).append(shown.get(index, LEFT_OUT))


def _without_systems(seen: Seen, count: int) -> Seen:
    """The same without instructions, which come and go with agents and profiles, and without their part of the
    budget."""
    taken = sum(tokens.of_message(message) for message in seen.forwarded[:count])
    context = {**seen.case.body["context"], "max_input_tokens": seen.case.budget - taken}
    case = replace(seen.case, body={**seen.case.body, "context": context})
    indexes = [index - count for index in seen.indexes[count:]]
    found = Seen(case, seen.originals[count:], seen.forwarded[count:], seen.figures, indexes)
    found.memory = seen.memory
    return found


def _check_summaries(talk: Talk, seen: Seen) -> None:
    """Each is one of the conversation's, once, and the window holds nothing of what the memory message tells."""
    if seen.memory is None:
        return
    text = text_of(seen.memory["content"])
    names = [found.group(1) for found in memory.SUMMARY.finditer(text)]
    hold("§11.13", len(names) == len(set(names)), f"a summary twice: {names}")
    window = [text_of(message["content"]) for message in seen.forwarded]
    for name in names:
        hold("§11.13", name in talk.summarized, f"a summary of another conversation: {name}")
        last = talk.summarized.get(name)
        hold("§11.13", last not in window, f"the window holds what a summary tells: {str(last)[:80]!r}")


def _check_sections(asked: Asked, forwarded: list[Json], said: list[Json], pinned: set[int]) -> None:
    """What an agent with sections is sent: within the budget, whole pairs, one prompt that ends with the current
    message, all that is pinned word for word in it."""
    budget = asked.body["context"]["max_input_tokens"]
    counted = tokens.of_prompt(forwarded, asked.body)
    hold("I1", counted <= budget, f"{counted} tokens of {budget}")
    check_pairs(forwarded)
    rest, remembered = memory.taken_out(forwarded)
    hold("I2 memory", remembered is None, "a memory message beside sections")
    prompts = [message for message in rest if message["role"] == "user"]
    hold("I4", len(prompts) == 1, f"{len(prompts)} prompts")
    text, at = text_of(prompts[0]["content"]), 0
    for each in asked.own:
        at = text.find(each, at)
        hold("I4", at >= 0, f"the user's own words are not there: {each[:80]!r}")
    current = max((i for i, m in enumerate(said) if m["role"] != "tool" and not m.get("tool_calls")), default=0)
    for index in pinned:
        message = said[index]
        if index < current and message["role"] not in INSTRUCTIONS:
            shown = text_of(message["content"]).replace(" [NEXT:max]", "").strip()
            hold("§11", shown in text, f"a pinned message is not in the sections: {shown[:80]!r}")
