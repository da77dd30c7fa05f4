"""Random clients before a gateway, and the model of what its histories must be (guarantee §3)."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule, run_state_machine_as_test

from tests.support.history_model import Ask, Json, Model, Plan, Talk, is_answer
from tests.support.history_views import SYSTEMS, Way, edited, shaped, upto_last_question
from tests.support.history_world import LONG, Heard, Script, World, answer_of

FAILURES = ["error500", "error400"]
WORDLESS = ["cut0", "cut1"]
"""Broken off before a word was said: the first chunk holds a role alone, and nothing of it went to the client."""
BROKEN = [*WORDLESS, "cut2", "cut3", "leave"]
PLAIN = ["text", "text", "text", "long", "two", "cut3"]

scripts = st.builds(
    Script,
    kind=st.sampled_from(["text"] * 6 + ["calls"] * 4 + ["long", "two", "two", *FAILURES, *BROKEN]),
    stream=st.booleans(),
    wants=st.integers(1, 2),
    reasoning=st.sampled_from(["", "", "hm"]),
)
plain_scripts = st.builds(Script, kind=st.sampled_from(PLAIN), stream=st.booleans())
ways = st.builds(
    Way,
    by=st.sampled_from(["itself", "itself", "id", "session"]),
    sends=st.sampled_from(["all", "all", "new", "tail"]),
    drops=st.sampled_from(["nothing", "nothing", "tools", "first tools", "reasoning", "system"]),
    writes=st.sampled_from(["as it is", "as it is", "spaces", "parts"]),
    stores=st.sampled_from([True] * 9 + [False]),
)
both = st.tuples(scripts, scripts)
texts = st.sampled_from(["yes", "no", *[""] * 4])


@dataclass
class Chat:
    """A conversation as one client keeps it."""

    system: list[Json]
    user: str | None = None
    session: str | None = None
    conversation: str | None = None
    view: list[Json] = field(default_factory=list)
    trimmed: bool = False
    """Whether its oldest messages were once left out: from then on it is gone on with by name."""


class Histories(RuleBasedStateMachine):
    """One tenant, its clients and its conversations."""

    world: World
    chats = Bundle("chats")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.key = f"sk-tenant-{self.world.number()}"
        self._serial = itertools.count(1)
        self.tangled: set[str | None] = set()
        self.right = True
        self.crossed: set[str | None] = set()
        self.billed: dict[str | None, Counter[str]] = {}

    # What clients do.

    @rule(
        target=chats,
        text=st.sampled_from(["", "", "yes"]),
        script=scripts,
        common=st.booleans(),
        system=st.sampled_from(SYSTEMS),
        user=st.sampled_from([None, None, None, "ann"]),
        session=st.booleans(),
    )
    def begins(
        self, text: str, script: Script, common: bool, system: list[Json], user: str | None, session: bool
    ) -> Any:
        """A first message; `common` ones are answered as others are, by the same words and calls of the same ids."""
        chat = Chat(system, user, f"session {next(self._serial)}" if session else None)
        script = replace(script, text="ok", calls=("call_0",)) if common and text else script
        self._go(chat, [self._user(text)], Way(by="session" if session else "itself"), script)
        return chat if chat.view else multiple()

    @rule(chat=chats, text=texts, way=ways, script=scripts)
    def says(self, chat: Chat, text: str, way: Way, script: Script) -> None:
        """The next message."""
        self._go(chat, [self._user(text)], way, script)

    @rule(chat=chats, way=ways, script=scripts, backwards=st.booleans())
    def answers_calls(self, chat: Chat, way: Way, script: Script, backwards: bool) -> None:
        """The results of the calls that the model asked for; if it asked for none, the next message."""
        calls = chat.view[-1].get("tool_calls") or []
        names = [call["id"] for call in calls]
        results = [_result(name, f"result {next(self._serial)}") for name in names]
        results = results[::-1] if backwards else results
        if way.sends == "tail" or (way.sends == "new" and not self._is_open(chat)):
            way = replace(way, sends="all")
        self._go(chat, results or [self._user("")], way, script)

    @rule(chat=chats, way=ways, script=plain_scripts, form=st.sampled_from(["joined", "two"]))
    def says_with_prefill(self, chat: Chat, way: Way, script: Script, form: str) -> None:
        """The next message, and how the answer is to begin; the client keeps both in a form of its own."""
        way = replace(way, writes="as it is") if way.writes == "spaces" else way  # within the answer it is no outer one
        form = "joined" if script.kind in BROKEN else form
        prefill = {"role": "assistant", "content": f"p{next(self._serial)}"}
        self._go(chat, [self._user(""), prefill], way, script, form=form)

    @rule(chat=chats, way=ways, script=scripts)
    def asks_again(self, chat: Chat, way: Way, script: Script) -> None:
        """The last answer is made anew."""
        chat.view = upto_last_question(chat.view)
        self._go(chat, [], replace(way, sends="all"), script)

    @rule(chat=chats, at=st.integers(0, 20), cut=st.booleans(), way=ways, script=scripts)
    def edits(self, chat: Chat, at: int, cut: bool, way: Way, script: Script) -> None:
        """An earlier message is another; what followed is dropped, or kept as it was."""
        chat.view = edited(chat.view, at, cut, f"edited {next(self._serial)}")
        new = [] if chat.view[-1]["role"] in ("user", "tool") else [self._user("")]
        self._go(chat, new, replace(way, sends="all"), script)

    @rule(chat=chats, system=st.sampled_from(SYSTEMS))
    def changes_system(self, chat: Chat, system: list[Json]) -> None:
        """From now on other system messages are sent."""
        chat.system = system

    @rule(target=chats, chat=chats)
    def opens_elsewhere(self, chat: Chat) -> Any:
        """The same conversation on another device."""
        return replace(chat, view=list(chat.view))

    @rule(chat=chats, way=ways, kind=st.sampled_from(["stray", "again", "missing"]))
    def pairs_wrongly(self, chat: Chat, way: Way, kind: str) -> None:
        """A result without its call, or a call without its result: 400, and nothing is kept."""
        call = Script("calls", calls=(f"c{next(self._serial)}",)).message()
        new = {
            "stray": [self._user(""), _result("nobody", "x")],
            "again": [_result("call_0", "x"), _result("call_0", "x")],
            "missing": [self._user(""), call, self._user("")],
        }[kind]
        before = list(chat.view)
        way = replace(way, sends="new") if way.by != "itself" and kind == "again" else way
        self._go(replace(chat), new, way, Script(), refused=True)
        assert chat.view == before

    @rule(
        one=chats, other=chats, ways=st.tuples(ways, ways), scripts=st.tuples(scripts, scripts), last=st.integers(0, 1)
    )
    def two_at_once(
        self, one: Chat, other: Chat, ways: tuple[Way, Way], scripts: tuple[Script, Script], last: int
    ) -> None:
        """Both are under way before either is answered."""
        if other is one:
            other = replace(one, view=list(one.view))
        self._go_together([one, other], list(ways), list(scripts), last)

    @rule(chat=chats)
    def deletes(self, chat: Chat) -> None:
        """For good; whoever goes on with it by name learns so, and by itself begins anew."""
        talk = self._talk(chat.conversation)
        if talk is not None:
            if self.world.delete(self.key, talk.id or "") != 200:
                return
            self.model.delete(talk)

    # How it is sent, and looked at.

    def _go(
        self, chat: Chat, new: list[Json], way: Way, script: Script, form: str = "joined", *, refused: bool = False
    ) -> None:
        if chat.conversation in self.tangled and not new:
            return  # such a conversation is only gone on with
        if not new and script.kind == "cut2" and script.reasoning:
            script = replace(script, kind="cut3")  # a turn without any message would hold nothing but system messages
        ask, script = self._ask(chat, new, way), self._filled(script)
        plan = self.model.begin(ask)
        assert not refused or plan.refused or plan.gone, "what this rule sends is wrong"
        heard = self.world.send(self.key, ask, script)
        self._over(chat, new, plan, heard, script, form)

    def _go_together(self, chats: list[Chat], ways: list[Way], scripts: list[Script], last: int) -> None:
        news = [self._next(chats[0], ways[0]), self._next(chats[1], ways[1])]
        if all(new[0]["role"] == "tool" for new in news) and chats[0].conversation == chats[1].conversation:
            news[1] = [self._user("")]
        asks = [self._ask(*each) for each in zip(chats, news, ways, strict=True)]
        made = [self._filled(script) for script in scripts]
        plans = [self.model.begin(ask) for ask in asks]
        first = 1 - last

        def between(heard: Heard) -> None:
            self._over(chats[first], news[first], plans[first], heard, made[first])

        heard = self.world.send_two(self.key, asks, made, last, between)
        self._over(chats[last], news[last], plans[last], heard, made[last])
        self.crossed |= {chat.conversation for chat in chats}
        talk = plans[last].talk
        if talk is not None and plans[0].talk is plans[1].talk:
            self.tangled.add(talk.id)

    def _next(self, chat: Chat, way: Way) -> list[Json]:
        """What comes next in a chat: results that were asked for, else a user's message."""
        calls = chat.view[-1].get("tool_calls") or []
        unique = all(call["id"] != "call_0" for call in calls)
        if calls and unique and (way.sends == "all" or self._is_open(chat)):
            return [_result(call["id"], f"result {next(self._serial)}") for call in calls]
        return [self._user("")]

    def _ask(self, chat: Chat, new: list[Json], way: Way) -> Ask:
        by = way.by if {"id": chat.conversation, "session": chat.session, "itself": "x"}[way.by] else "itself"
        if chat.conversation in self.tangled:
            by, way = "id", replace(way, sends="new")
        if by == "itself" and chat.trimmed:
            by = "id"
        if by == "itself":
            way = replace(way, sends="all")
        chat.trimmed = chat.trimmed or way.sends == "tail"
        messages = shaped(chat.system, chat.view, new, way)
        return Ask(
            messages,
            conversation=chat.conversation if by == "id" else None,
            session=chat.session if by == "session" else None,
            user=chat.user,
            store=way.stores,
        )

    def _over(
        self, chat: Chat, new: list[Json], plan: Plan, heard: Heard, script: Script, form: str = "joined"
    ) -> None:
        """What the answer must be, and what comes of it for the model and for the client."""
        self.right = False
        self._check(chat, new, plan, heard, script, form)
        self.right = True

    def _check(self, chat: Chat, new: list[Json], plan: Plan, heard: Heard, script: Script, form: str) -> None:
        if plan.gone:
            assert (heard.status, heard.body["error"]["code"]) == (404, "conversation_not_found")
            return
        if plan.refused:
            assert (heard.status, heard.forwarded) == (400, None), heard.body
            assert heard.body["error"]["param"] in {f"messages[{index}]" for index in plan.refused}
            return
        assert _said(heard.forwarded) == _said(plan.forwarded), (
            f"{_said(heard.forwarded)} instead of {_said(plan.forwarded)}"
        )
        talk = self.model.talk_of(plan)
        if heard.status != 200:
            assert script.kind in (*FAILURES, *WORDLESS)
            if talk is not None and plan.ask.store:
                self._bill(talk.id, "failed")
            return
        assert script.kind not in (*FAILURES, *WORDLESS)
        found = heard.body.get("conversation", {}).get("id")
        assert found == heard.conversation
        assert (found is not None) == plan.ask.store
        if plan.ask.store:
            known = {each.id for each in self.model.talks}
            named = talk.id if talk is not None else "a new one"
            assert found == named if talk is not None else found not in known, f"{found} instead of {named}"
        answers = answer_of(heard, script)
        self.model.commit(plan, answers, found, partial=not heard.done)
        self._bill(found, "complete" if heard.done else "partial")
        chosen = answers[-1]
        followed = plan.ask.store or (plan.talk is not None and not plan.ask.conversation and not plan.ask.session)
        if followed and (heard.done or chosen["content"]):
            chat.view = [*chat.view, *_kept(new, chosen, form)]
        chat.conversation = found or chat.conversation

    def _bill(self, conversation: str | None, status: str) -> None:
        self.billed.setdefault(conversation, Counter())[status] += 1

    def teardown(self) -> None:
        """At the end a delta by id shows the whole of each conversation, and the database each message once."""
        if not self.right:
            return
        living = [talk for talk in self.model.talks if not talk.deleted]
        for talk in living:
            chat = Chat([], conversation=talk.id, view=[{"role": "user", "content": "?"}])
            self._go(chat, [self._user("")], Way(by="id", sends="new"), Script())
            statuses = Counter(bill["status"] for bill in self.world.bills(self.key, talk.id or ""))
            known = self.billed[talk.id]
            assert (statuses["complete"], statuses["partial"]) == (known["complete"], known["partial"])
            assert statuses["failed"] >= known["failed"]
        alone = [talk.id for talk in living if talk.id and talk.id not in self.crossed]
        assert not self.world.stored_twice(alone)
        assert not self.world.upstream.violations

    def _talk(self, conversation: str | None) -> Talk | None:
        return next((t for t in self.model.talks if t.id == conversation and not t.deleted), None)

    def _is_open(self, chat: Chat) -> bool:
        """Whether the calls that a client has to answer are the last that its conversation holds."""
        talk = self._talk(chat.conversation)
        return talk is not None and talk.head.body.get("tool_calls") == chat.view[-1].get("tool_calls")

    def _user(self, text: str) -> Json:
        return {"role": "user", "content": text or f"u{next(self._serial)}"}

    def _filled(self, script: Script) -> Script:
        """With words and ids that nobody used before."""
        number = next(self._serial)
        text = script.text or f"a{number} one two three four" + (LONG if script.kind == "long" else "")
        if script.kind != "calls":
            return replace(script, text=text, calls=())
        names = tuple(f"c{number}_{i}" for i in range(script.wants))
        return replace(script, text="" if number % 2 else f"look {number}", calls=script.calls or names)


def histories_in(world: World) -> type[Histories]:
    """Those whose clients are before this gateway."""
    return type("BoundHistories", (Histories,), {"world": world})


def check_histories(world: World, *, examples: int, steps: int, always_the_same: bool) -> None:
    """Makes up that many histories of so many steps each, each time others or always the same, and checks them all.

    The same wherever it runs: see `tests/support/patches.py`.
    """
    run_state_machine_as_test(
        histories_in(world),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            derandomize=always_the_same,
            phases=[Phase.generate],  # to make a history shorter takes minutes, and thousands of requests
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _result(name: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": name, "content": text}


def _said(messages: Sequence[Json] | None) -> list[Any]:
    """What the messages say; an empty text beside tool calls may be missing."""
    return [{name: each for name, each in message.items() if each not in ("", None)} for message in messages or ()]


def _kept(new: Sequence[Json], answer: Json, form: str) -> list[Json]:
    """What a client appends to its view: a prefill with its completion as one, as two, or the completion alone."""
    if not new or not is_answer(new[-1]) or form == "two":
        return [*new, answer]
    joined = new[-1]["content"] + answer["content"] if form == "joined" else answer["content"]
    return [*new[:-1], {**answer, "content": joined}]
