"""What a history must be, in plain Python and as simply as it can be said (guarantee §3).

Conversations are trees of messages that are searched from end to end: no digests, no windows, no database. Nothing
here comes from the gateway; what the two do not agree on is a fault in one of them.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]
ENOUGH_SAID = 200
"""Characters of assistant text that show that a client took part in a conversation."""


def text_of(message: Json) -> str | None:
    """The trimmed text of a message that is nothing but text: a string equals its text parts."""
    content = message.get("content")
    if isinstance(content, list):
        if any(part["type"] != "text" for part in content):
            return None
        content = "".join(part["text"] for part in content)
    return (content or "").strip()


def same(one: Json, other: Json) -> bool:
    """Whether two messages are the same but for outer white space and what clients drop."""
    return _identity(one) == _identity(other)


def _identity(message: Json) -> str:
    text = text_of(message)
    calls = [[call["id"], call["function"]] for call in message.get("tool_calls") or ()]
    said = message["content"] if text is None else text
    return json.dumps([message["role"], said, calls, message.get("tool_call_id")], sort_keys=True)


def call_ids(messages: Sequence[Json]) -> list[str]:
    """The ids of all calls that these messages make."""
    return [call["id"] for message in messages for call in message.get("tool_calls") or ()]


def is_answer(message: Json) -> bool:
    """Whether it is what the assistant finally said, not a step on the way."""
    return message["role"] == "assistant" and not message.get("tool_calls")


@dataclass(eq=False)
class Node:
    """A stored message under the one it follows. `forms`: how a client may send it again, each a list of texts."""

    body: Json
    parent: "Node | None"
    instructions: tuple[Json, ...] = ()
    forms: tuple[tuple[str, ...], ...] = ()
    restored: bool = False
    children: list["Node"] = field(default_factory=list)
    beside: tuple["Node", ...] = ()
    """All answers to one request, if this is one of several."""
    unproven: bool = False
    """Brought along by a request that had nothing to show: somebody else may have made it up."""
    partial: bool = False
    """What followed it, or it itself, broke off."""
    number: int = field(default_factory=itertools.count().__next__)
    """The later of two messages has the higher one."""

    def add(self, body: Json, instructions: tuple[Json, ...], forms: tuple[tuple[str, ...], ...] = ()) -> "Node":
        """A message that follows this one."""
        made = Node(body, self, instructions, forms, self.restored)
        self.children.append(made)
        return made

    def path(self) -> list["Node"]:
        """All messages from the first to this one."""
        return [*self.parent.path(), self] if self.parent is not None else []


def _root() -> Node:
    return Node({"role": "", "content": ""}, None)


@dataclass(eq=False)
class Talk:
    """A conversation: a tree, and its head, the latest committed turn."""

    id: str | None
    root: Node = field(default_factory=_root)
    head: Node = field(init=False)
    deleted: bool = False
    runs: list[tuple[Node, Node]] = field(default_factory=list)
    """Ends of it that a client once sent as all that it knew and went on from: the message before each, and the first
    that was new. A client goes on to know the conversation so."""

    def __post_init__(self) -> None:
        self.head = self.root


TranscriptMessage = tuple[str, tuple[tuple[str, ...], ...]]
"""One thing that was said: by whom, and the forms that its text may have."""


@dataclass
class Trace:
    """The digest that an answered request leaves; without a conversation (`store: false`) it only makes doubtful."""

    user: str | None
    said: list[TranscriptMessage]
    calls: frozenset[str]
    beside: str | None
    """The text of an answer with calls."""
    talk: Talk | None
    whole: list[str]
    """All messages that led to it, itself included, tool steps too."""
    node: Node

    @property
    def living(self) -> bool:
        """Whether it belongs to a conversation that is still there."""
        return self.talk is not None and not self.talk.deleted

    @property
    def at_head(self) -> bool:
        """Whether its conversation ends with it, or with another answer to the same request."""
        return self.living and self.talk is not None and self.node in (self.talk.head.beside or (self.talk.head,))


@dataclass
class Ask:
    """A request as the client sends it."""

    messages: list[Json]
    conversation: str | None = None
    session: str | None = None
    user: str | None = None
    store: bool = True

    @property
    def instructions(self) -> tuple[Json, ...]:
        """The system messages at its beginning."""
        return tuple(self.messages[: self.offset])

    @property
    def offset(self) -> int:
        """How many those are."""
        return next((i for i, m in enumerate(self.messages) if m["role"] not in ("system", "developer")), 0)


@dataclass
class Plan:
    """Where a request continues, and what must be forwarded. `refused`: indexes of which a 400 must name one."""

    ask: Ask
    talk: Talk | None
    node: Node
    new: list[Json]
    instructions: tuple[Json, ...]
    forwarded: list[Json]
    begins: Node | None = None
    """The message before the first that was sent, where that is not the conversation's first."""
    at_head: bool = False
    """Whether it continues what was the head when it began: it is appended to what followed that by then."""
    restored: bool = False
    unproven: bool = False
    """Whether a conversation was recognised that its chain does not show to be its own."""
    refused: set[int] = field(default_factory=set)
    gone: bool = False
    """Whether there is no such conversation."""


class Model:
    """All conversations of one tenant."""

    def __init__(self) -> None:
        self.talks: list[Talk] = []
        self.sessions: dict[str, Talk] = {}
        self.traces: list[Trace] = []

    def begin(self, ask: Ask) -> Plan:
        """What a request sees when it begins."""
        living = [talk for talk in self.talks if not talk.deleted]
        talk = next((t for t in living if ask.conversation and t.id == ask.conversation), None)
        if not ask.conversation and ask.session:
            talk = self.sessions.get(ask.session)
        if talk is not None:
            plan = self._by_name(ask, talk)
        elif not ask.conversation and not ask.session and (found := self._matched(ask)):
            plan = self._by_itself(ask, *found)
        else:
            plan = Plan(ask, None, _root(), ask.messages[ask.offset :], ask.instructions, ask.messages)
        plan.gone = bool(ask.conversation) and talk is None
        plan.refused = unanswered(ask.messages) | uncalled(plan)
        return plan

    def commit(self, plan: Plan, answers: Sequence[Json], conversation: str | None, partial: bool = False) -> None:
        """An answered turn: its messages, then the answers as siblings of which the first is continued."""
        prefill = plan.new[-1] if plan.new and is_answer(plan.new[-1]) else None
        talk, node = self.talk_of(plan), plan.node
        if plan.ask.store:
            talk = talk or self._new_talk(plan.ask, conversation)
            follows = plan.talk is None or node is talk.root or node in talk.head.path()
            node = talk.head if follows and (plan.at_head or plan.talk is None) else node
        else:
            node = _root()
        known = plan.node.path()
        older = len(plan.begins.path()) if plan.begins is not None else 0
        seen = said_in(known)
        unsent = len(said_in(known[:older]))
        whole = [_identity(node.body) for node in known]
        for body in plan.new[:-1] if prefill else plan.new:
            node = node.add(body, plan.instructions)
            node.restored = node.restored or plan.restored
            node.unproven = plan.unproven
            seen += said_in([node])
            whole.append(_identity(body))
        latest = node
        choices: list[Node] = []
        before = plan.node
        for number, answer in enumerate(answers):
            body, forms = _remembered(answer, prefill, partial)
            if not text_of(body) and not body.get("tool_calls"):
                continue
            made = node.add(body, plan.instructions, forms)
            made.restored = made.restored or plan.restored
            latest = made if number == 0 else latest
            choices.append(made)
            stored = Trace(
                plan.ask.user,
                seen + said_in([made]),
                frozenset(call_ids([body])),
                text_of(body) if body.get("tool_calls") else None,
                talk if plan.ask.store else None,
                [*whole, _identity(body)],
                made,
            )
            self.traces.append(stored)
            if older:  # its client sends it again as it sent it
                self.traces.append(replace(stored, said=stored.said[unsent:], whole=stored.whole[older:]))
        for choice in choices:
            choice.beside = tuple(choices)
        first = next(iter(latest.path()[len(before.path()) :]), None)
        if plan.begins is not None and talk is not None and first is not None and first.parent is before:
            talk.runs.append((plan.begins, first))
        latest.partial = partial
        if plan.ask.store and talk is not None:
            talk.head = latest

    def talk_of(self, plan: Plan) -> Talk | None:
        """The conversation to which an answer belongs; another request may have begun it under that name meanwhile."""
        return plan.talk or self.sessions.get(plan.ask.session or "")

    def delete(self, talk: Talk) -> None:
        """Deleted for good: its names are free again, what its requests left as digests stays."""
        talk.deleted = True
        self.sessions = {name: other for name, other in self.sessions.items() if other is not talk}

    def _new_talk(self, ask: Ask, conversation: str | None) -> Talk:
        talk = Talk(conversation)
        self.talks.append(talk)
        if ask.session and not ask.conversation:
            self.sessions[ask.session] = talk
        return talk

    def _by_name(self, ask: Ask, talk: Talk) -> Plan:
        """§3.1: a delta without assistant messages, else a resend from the beginning or a run that ends at the head."""
        sent = ask.messages[ask.offset :]
        compared = sent[:-1] if is_answer(sent[-1]) else sent
        node, count, begins = talk.root, 0, talk.root
        if len(compared) < len(sent) or any(m["role"] == "assistant" for m in compared):
            node, count, begins = furthest_sent(talk, compared)
            is_run = begins is not talk.root and any(m["role"] == "assistant" for m in compared[count:])
            if not count or is_run:
                at_head = run_at_head(talk, compared)
                node, count, begins = at_head if at_head[1] else (node, count, begins)
        delta = not count and not any(m["role"] == "assistant" for m in compared)
        node = resumed(talk.head, sent) if delta else node
        in_force = node.instructions if node is not talk.root else talk.head.instructions
        instructions = ask.instructions or in_force
        new = sent[count:]
        forwarded = [*instructions, *visible(node.path(), new), *new]
        run = begins if count and begins is not talk.root else None
        return Plan(ask, talk, node, new, instructions, forwarded, run, node is talk.head)

    def _matched(self, ask: Ask) -> tuple[Talk, list[Json]] | None:
        """§3.2: the conversation of the chain up to the last answer, and the chain."""
        for chain in _chains(ask.messages[ask.offset :]):
            calls = frozenset(call_ids(chain[-1:]))
            said = [(m["role"], _words(m)) for m in chain if _is_said(m)]
            beside = text_of(chain[-1]) if calls else None
            found = [t for t in self.traces if t.user == ask.user and t.beside == beside]
            found = [trace for trace in found if _fits(trace.said, said)]
            if len({trace.talk for trace in found}) > 1 and calls:
                found = [trace for trace in found if trace.calls == calls]
            if found:
                talk = found[0].talk if len({trace.talk for trace in found}) == 1 else _of_several(found, chain)
                return (talk, chain) if talk is not None and not talk.deleted else None
        return None

    def _by_itself(self, ask: Ask, talk: Talk, chain: Sequence[Json]) -> Plan:
        """§3.2: what the client did not send comes back only if its chain shows that it was there.

        A tool call shows it where the conversation made it on the branch that is continued: the steps of another
        branch are messages that are new here, and whoever sends them gets nothing back for them (§1: as sent).
        """
        sent = ask.messages[ask.offset :]
        compared = sent[:-1] if is_answer(sent[-1]) else sent
        node, count, begins = furthest_sent(talk, compared)
        known = compared[:count]
        ids = {*call_ids(known), *(m["tool_call_id"] for m in known if m["role"] == "tool")}
        proven = call_ids([step.body for step in node.path() if not step.unproven])
        assistant = sum(len(text_of(m) or "") for m in chain if is_answer(m))
        new = sent[count:]
        run = begins if begins is not talk.root else None
        plan = Plan(ask, talk, node, new, ask.instructions, ask.messages, run, node is talk.head)
        if ids.intersection(proven) or assistant >= ENOUGH_SAID or node.restored:
            plan.forwarded = [*ask.instructions, *visible(node.path()[len(begins.path()) :], new), *new]
            plan.restored = _is_more(plan.forwarded, ask.messages)
        else:
            plan.unproven = True
        return plan


def _of_several(found: Sequence[Trace], chain: Sequence[Json]) -> Talk | None:
    """§3.2: of several conversations the one that ends with the chain; the latest of those that are equal.

    Who sent tool steps means those. What was not stored, or is deleted, may have ended there, too.
    """
    ends = [trace for trace in found if trace.at_head or not trace.living]
    if any(message["role"] == "tool" or message.get("tool_calls") for message in chain):
        sent = [_identity(message) for message in chain]
        ends = [trace for trace in ends if trace.whole == sent] or ends
    heads = [trace for trace in ends if trace.at_head]
    return heads[-1].talk if heads and all(trace.whole == ends[0].whole for trace in ends) else None


def furthest(node: Node, sent: Sequence[Json], at: int) -> tuple[Node, int]:
    """The message down the tree at which most of what was sent is found, the latest of several; whole tool steps may be
    left out of it."""
    best = (node, at)
    for child in node.children:
        steps = [at + 1] if at < len(sent) and same(child.body, sent[at]) else []
        steps += [at + len(form) for form in child.forms if _says(sent[at : at + len(form)], form)]
        found = [furthest(child, sent, after) for after in steps]
        if child.body.get("tool_calls"):
            found += [f for end in _ends_of_step(child) if (f := furthest(end, sent, at))[0] is not end]
        best = max([best, *found], key=lambda place: (place[1], place[0].number))
    return best


def furthest_sent(talk: Talk, sent: Sequence[Json]) -> tuple[Node, int, Node]:
    """The same from the beginning, or from where a client that went on with an end of it takes it to begin; and the
    message before that."""
    node, count = furthest(talk.root, sent, 0)
    begins = talk.root
    for start, known in talk.runs:
        found, more = furthest(start, sent, 0)
        if more > count and known in found.path():
            node, count, begins = found, more, start
    return node, count, begins


def run_at_head(talk: Talk, sent: Sequence[Json]) -> tuple[Node, int, Node]:
    """The longest beginning of what was sent that is the end of the head's path, or of the path of an answer that was
    given beside it; and the message before it."""
    for head in talk.head.beside or (talk.head,):
        path = head.path()
        for start in range(1, len(path)):
            alone = _root()
            end = alone
            for node in path[start:]:
                end = end.add(node.body, node.instructions, node.forms)
            found, count = furthest(alone, sent, 0)
            if count and found is end:
                return head, count, path[start - 1]
    return talk.root, 0, talk.root


def resumed(head: Node, delta: Sequence[Json]) -> Node:
    """The message behind which a delta continues: the calls that it answers again as what followed them broke off, else
    the head."""
    path = head.path()[: -1 if is_answer(head.body) else None]
    step = next((node for node in reversed(path) if node.body["role"] != "tool"), None)
    again = step is not None and delta[0].get("tool_call_id") in call_ids([step.body])
    return step if step is not None and head.partial and again else head


def visible(path: Sequence[Node], follows: Sequence[Json]) -> list[Json]:
    """What of a stored path is forwarded: turns whole, in the order they were finished, and no call alone."""
    turns: list[list[Json]] = []

    def finish_turn_of(result: Json) -> None:
        if result["tool_call_id"] not in call_ids(turns[-1]):
            owner = next((turn for turn in reversed(turns) if result["tool_call_id"] in call_ids(turn)), turns[-1])
            turns.remove(owner)
            turns.append(owner)

    for body in (node.body for node in path):
        if body["role"] == "user" or not turns:
            turns.append([])
        elif body["role"] == "tool":
            finish_turn_of(body)
        turns[-1].append(body)
    if turns and follows and follows[0]["role"] == "tool":
        finish_turn_of(follows[0])
    bodies = [body for turn in turns for body in turn]
    kept: list[Json] = []
    for index, body in enumerate(bodies):
        wanted = len(body.get("tool_calls") or ())
        after = [*bodies[index + 1 :], *follows][:wanted]
        if wanted and [m.get("role") for m in after] != ["tool"] * wanted:
            body = {name: value for name, value in body.items() if name != "tool_calls"}
            if not body["content"]:
                continue
        kept.append(body)
    return kept


def unanswered(messages: Sequence[Json]) -> set[int]:
    """The indexes of calls without all their results, in what a client sent."""
    found = set()
    for index, message in enumerate(messages):
        wanted = sorted(call_ids([message]))
        results = messages[index + 1 : index + 1 + len(wanted)]
        if wanted != sorted(str(m.get("tool_call_id")) for m in results):
            found.add(index)
    return found


def uncalled(plan: Plan) -> set[int]:
    """The indexes, in what was sent, of results whose call is nowhere, or that leave another call without one."""
    new = len(plan.ask.messages) - len(plan.new)
    first = len(plan.forwarded) - len(plan.new)
    found, wanted = set(), list[str]()
    for index, message in enumerate(plan.forwarded):
        sent = new + max(0, index - first)
        if message["role"] != "tool":
            found |= {sent} if wanted else set()
            wanted = call_ids([message])
        elif message["tool_call_id"] in wanted:
            wanted.remove(message["tool_call_id"])
        else:
            found.add(sent)
    return found | ({new} if wanted else set())


def said_in(path: Sequence[Node]) -> list[TranscriptMessage]:
    """What was said on a path: user messages and final answers."""
    return [(node.body["role"], node.forms or ((_words(node.body),),)) for node in path if _is_said(node.body)]


def _chains(sent: Sequence[Json]) -> list[list[Json]]:
    """The messages up to the last assistant's answer, and if that may be a prefill also up to the one before."""
    ends = [number + 1 for number, message in enumerate(sent) if message["role"] == "assistant"][::-1]
    return [list(sent[:end]) for end in ends[: 2 if is_answer(sent[-1]) else 1]]


def _is_said(message: Json) -> bool:
    return message["role"] == "user" or (is_answer(message) and text_of(message) != "")


def _words(message: Json) -> str:
    text = text_of(message)
    return json.dumps(message["content"]) if text is None else text


def _fits(items: Sequence[TranscriptMessage], said: Sequence[tuple[str, str]]) -> bool:
    """Whether what was sent is what was said, each thing in one of its forms."""
    if not items or not said:
        return not items and not said
    (role, forms), *rest = items
    return any(
        [(role, text) for text in form]
        == [(r, t if isinstance(t, str) else json.dumps(t)) for r, t in said[: len(form)]]
        and _fits(rest, said[len(form) :])
        for form in forms
    )


def _says(messages: Sequence[Json], form: Sequence[str]) -> bool:
    return all(map(is_answer, messages)) and [text_of(m) for m in messages] == list(form)


def _ends_of_step(call: Node) -> list[Node]:
    """Where a tool step may be over: after its results, whichever of them was edited."""
    ends, results = [], [child for child in call.children if child.body["role"] == "tool"]
    if len(results) < len(call.children):
        ends.append(call)
    for result in results:
        ends += _ends_of_step(result)
    return ends


def _remembered(answer: Json, prefill: Json | None, partial: bool) -> tuple[Json, tuple[tuple[str, ...], ...]]:
    """An answer as it is stored, and its forms: a prefill and its completion are one, two, or the completion alone."""
    body = {name: value for name, value in answer.items() if not (partial and name == "tool_calls")}
    if prefill is None or not isinstance(body.get("content"), str):
        return body, ()
    before, completion = text_of(prefill) or "", body["content"]
    joined = prefill["content"] + completion if isinstance(prefill["content"], str) else before + completion
    forms = ((joined.strip(),), (before, completion.strip()), (completion.strip(),))
    return {**body, "content": joined}, forms if completion.strip() else ((joined.strip(),),)


def _is_more(forwarded: Sequence[Json], sent: Sequence[Json]) -> bool:
    """Whether tool steps came back that the client had left out. What belongs to a message that it sent comes back with
    that in any case (§1)."""

    def steps(messages: Sequence[Json]) -> int:
        return sum(m["role"] == "tool" or bool(m.get("tool_calls")) for m in messages)

    return steps(forwarded) > steps(sent)
