"""Passes that pay, without a server: when one is made, what leaves, and what stays (guarantee §4 I7)."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.conversations.message_forms import as_frozen
from gateway.core.config.settings import ContextSettings
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.bill import BranchCosts, SentPrompt
from gateway.core.types.chat import ContextOptions, ModelFacts, PromptBudget
from gateway.core.types.conversation import ConversationHistory, FrozenDecision, PromptFrame
from gateway.core.types.memory import MemoryEntity
from tests.support.answers import there
from tests.support.documents import prose
from tests.unit.making import FACTS, NOW, OPTIONS, assistant, build, chat, context_manager, history, stored, tool, user

Json = dict[str, Any]
PRICES = {
    "input_cost_per_token": Decimal("0.000003"),
    "output_cost_per_token": Decimal("0.000015"),
    "cache_read_input_token_cost": Decimal("0.0000003"),
    "cache_creation_input_token_cost": Decimal("0.00000375"),
}
PRICED = replace(FACTS, prices=PRICES)
AUTO, OBSERVE, OFF = (replace(OPTIONS, economy=mode) for mode in ("auto", "observe", "off"))
IDLE = timedelta(minutes=6)


def step(number: int, name: str = "read", path: str | None = None, words: int = 400) -> list[Json]:
    """A call, and a result of about as many words."""
    arguments = f'{{"path": "src/{path or f"f{number}.py"}"}}'
    return [assistant(None, f"c{number}", name=name, arguments=arguments), tool(f"c{number}", prose(number, words))]


def loop(count: int) -> list[Json]:
    """One turn with so many steps, each of which reads a file of its own."""
    return [user("Mend the harbour."), *(message for number in range(count) for message in step(number))]


def conversation(messages: list[Json], idle: timedelta | None = IDLE, **more: Any) -> ConversationHistory:
    """A stored conversation that goes on with the result of its last call."""
    made = history(messages)
    known = tuple(stored(messages[:-1]))
    used_at = None if idle is None else NOW - idle
    return replace(made, messages=(*known, *made.messages[-1:]), stored=len(known), used_at=used_at, **more)


async def built(
    messages: list[Json],
    idle: timedelta | None = IDLE,
    options: ContextOptions = AUTO,
    facts: ModelFacts = PRICED,
    request: Json | None = None,
    budget: int = 100_000,
    settings: ContextSettings | None = None,
    **more: Any,
) -> BuiltContext:
    """The context of a request that sends all of these messages, the last of them new."""
    asked = chat(messages, options=options, **(request or {}))
    return await context_manager(settings).build(
        asked, conversation(messages, idle, **more), facts, PromptBudget(budget, 128_000)
    )


def left(context: BuiltContext) -> list[int]:
    """Indexes of the results that are labels."""
    sent = context.fitted.forwarded.messages
    return [index for index, message in enumerate(sent) if str(message["content"]).startswith("[Left out: tool result")]


OLD = [2 * number for number in range(1, 9)]
"""Of a loop of 20 steps the results that are older than 12 answers: they begin at index 2, and the last is at 40."""


async def test_s4_i7_a_cold_turn_clears_what_is_old_and_nobody_reads() -> None:
    context = await built(loop(20))
    assert left(context) == OLD
    assert there(context.economy).passed == "cold"
    assert not context.fitted.new_pass


@pytest.mark.parametrize(
    ("idle", "more"),
    [
        (timedelta(minutes=4, seconds=59), {}),
        (None, {}),
        (IDLE, {"options": OBSERVE}),
        (IDLE, {"options": OFF}),
        (IDLE, {"options": replace(AUTO, mode="off")}),
        (IDLE, {"facts": FACTS}),
        (IDLE, {"request": {"forward": {"model": "gpt-4o", "prompt_cache_retention": "24h"}}}),
        (IDLE, {"facts": replace(FACTS, prices={k: v for k, v in PRICES.items() if "creation" not in k})}),
    ],
    ids=["warm", "unknown", "observe", "off", "mode off", "no prices", "kept for a day", "no time promised"],
)
async def test_s4_i7_nothing_leaves(idle: timedelta | None, more: Json) -> None:
    assert left(await built(loop(20), idle, **more)) == []


async def test_s4_i7_a_client_that_pays_for_an_hour_has_an_hour() -> None:
    """Wherever its mark stands: on a text, or on a call."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    first, call, *rest = loop(20)
    on_call = {**call, "tool_calls": [{**each, **mark} for each in call["tool_calls"]]}
    for begins in ([user([{"type": "text", "text": "Mend the harbour.", **mark}]), call], [first, on_call]):
        assert left(await built([*begins, *rest], timedelta(minutes=59))) == []
        assert left(await built([*begins, *rest], timedelta(minutes=61))) == OLD


async def test_s4_i7_an_hour_that_was_paid_for_is_an_hour_whatever_is_sent_now() -> None:
    """It was asked for by the request before; or the mark is in a message that the client need not send again."""
    costs = BranchCosts("gpt-4o", 1, 0, Decimal(1), Decimal(1), sent=SentPrompt("r", "", "", 0, b"", 0, 3600))
    assert left(await built(loop(20), timedelta(minutes=59), costs=costs)) == []
    assert left(await built(loop(20), timedelta(minutes=61), costs=costs)) == OLD
    marked = {"type": "text", "text": "Mend the harbour.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    messages = [user([marked]), *loop(20)[1:]]
    for minutes, gone in ((59, []), (61, OLD)):
        delta = chat(messages[-1:], options=AUTO)
        told = conversation(messages, timedelta(minutes=minutes))
        made = await context_manager().build(delta, told, PRICED, PromptBudget(100_000, 128_000))
        assert left(made) == gone


async def test_s4_i7_what_is_being_edited_stays_as_it_was_read() -> None:
    """The latest reading, and the latest of the whole where that was of a page; of a file that was read again, only
    these."""
    messages = [
        user("Mend it."),
        *step(0, path="pier.py"),
        *step(1, path="pier.py"),
        *step(2, path="pier.py", words=150),
    ]
    messages += [message for number in range(3, 18) for message in step(number)]
    messages += [message for number in range(18, 22) for message in step(number, "edit_file", "pier.py", words=5)]
    gone = left(await built(messages))
    assert 2 in gone
    assert not {4, 6} & set(gone)


SPACED = json.dumps([{"name": f"lamp {number}", "lit": True} for number in range(60)], indent=4)
"""A reading that compaction would make shorter, and that an edit has to quote as it is."""


def tight_loop() -> list[Json]:
    """Steps that do not fit 9,000 tokens together: a file is read first, and edited last."""
    reading = [step(0, path="lamps.json")[0], tool("c0", SPACED)]
    between = [message for number in range(1, 26) for message in step(number)]
    edit = [message for number in range(26, 28) for message in step(number, "edit_file", "lamps.json", words=5)]
    return [user("Mend the lamps."), *reading, *between, *edit]


async def test_s4_i7_where_something_has_to_leave_what_is_being_edited_stands_word_for_word() -> None:
    """In its place, behind its call, and not compacted; so does what was read within the last answers."""
    context = await built(tight_loop(), timedelta(seconds=1), budget=9000, costs=costs("0.5"))
    assert context.fitted.new_pass
    sent = [str(message["content"]) for message in context.fitted.forwarded.messages]
    assert SPACED in sent
    assert all(prose(number, 400) in sent for number in (23, 24, 25))
    assert prose(10, 400) not in sent
    assert context.fitted.tokens <= 9000


@pytest.mark.parametrize(
    ("options", "low_water", "facts"),
    [(OBSERVE, 0.4, PRICED), (OFF, None, PRICED), (OBSERVE, None, FACTS)],
    ids=["a share is set", "economy is off", "no price is known"],
)
async def test_s4_i7_else_a_pass_fills_a_share_of_the_budget(
    options: ContextOptions, low_water: float | None, facts: ModelFacts
) -> None:
    settings = ContextSettings(low_water=low_water)
    context = await built(
        tight_loop(), timedelta(seconds=1), options, facts, budget=9000, settings=settings, costs=costs("0.5")
    )
    assert SPACED not in [message["content"] for message in context.fitted.forwarded.messages]
    assert 0.3 * 9000 < context.fitted.tokens < 0.45 * 9000


@pytest.mark.parametrize("budget", [9000, 11_000], ids=["all is decided anew", "room near the end"])
async def test_s4_i7_prices_decide_how_much_leaves_by_default_too(budget: int) -> None:
    """Where something has to leave: `observe` changes nothing else."""
    said, saved = (tight_loop(), "0.5") if budget == 9000 else (full_loop(), "0")
    auto, observed = [
        await built(said, timedelta(seconds=1), options, budget=budget, settings=ContextSettings(), costs=costs(saved))
        for options in (AUTO, OBSERVE)
    ]
    assert observed.fitted.forwarded.messages == auto.fitted.forwarded.messages != said
    assert there(observed.economy).clearable == 0


async def test_s4_i7_a_pass_clears_all_but_what_is_worth_its_room() -> None:
    """Each token less makes the pass and all that follows cheaper, so that no low-water mark is filled."""
    deep, shallow = [
        (await built(loop(40), timedelta(seconds=1), options, budget=12_000)).fitted for options in (AUTO, OBSERVE)
    ]
    assert deep.new_pass
    assert deep.tokens < shallow.tokens


async def test_s4_i7_what_is_kept_leaves_before_a_request_is_refused() -> None:
    context = await built(tight_loop(), timedelta(seconds=1), budget=2500, costs=costs("0.5"))
    assert context.fitted.tokens <= 2500


async def test_s4_i7_what_is_kept_beside_the_goal_is_paid_out_of_savings() -> None:
    """A session that has saved nothing yet may end after its first pass."""
    rich, poor = [
        (await built(tight_loop(), timedelta(seconds=1), budget=9000, costs=costs(saved))).fitted.tokens
        for saved in ("0.2", "0.1")
    ]
    assert poor < rich


def full_loop() -> list[Json]:
    """A loop that fits 11,000 tokens but for its last result."""
    return [*loop(20), *step(20, "bash", words=900), *step(21, "bash", words=900)]


async def test_s4_i7_a_window_that_is_full_late_makes_room_near_its_end() -> None:
    """A session that ends soon would not earn back what deciding all anew costs. All before it stays in the cache."""
    before = (await built(full_loop()[:-2], timedelta(seconds=1), budget=11_000, costs=costs("0"))).fitted
    assert not before.new_pass
    context = await built(full_loop(), timedelta(seconds=1), budget=11_000, costs=costs("0"))
    assert left(context) == [len(full_loop()) - 3]
    assert context.fitted.tokens <= 11_000
    assert not context.fitted.new_pass
    assert context.economy is not None
    assert context.economy.passed == "paid"
    assert context.economy.cleared > 800
    assert context.left_out is not None
    assert context.left_out.tokens == pytest.approx(context.economy.cleared, rel=0.2)
    assert context.left_out.unchanged == pytest.approx(before.tokens - 1200, rel=0.1)


async def test_s6_more_than_the_window_holds_is_not_saved_near_its_end_either() -> None:
    """No client could have sent it."""
    facts = replace(PRICED, max_input_tokens=11_000)
    context = await built(full_loop(), timedelta(seconds=1), facts=facts, budget=11_000, costs=costs("0"))
    assert there(context.economy).passed == "paid"
    assert 0 < there(context.left_out).tokens <= 11_000 - context.fitted.tokens


async def test_s6_what_passes_left_out_before_the_window_was_full_is_not_saved_beyond_it() -> None:
    """A session that passes keep short may be longer than its model's window."""
    facts = replace(PRICED, max_input_tokens=30_000)
    context = await built(loop(20), facts=facts, frame=PromptFrame(left_out_tokens=60_000))
    assert there(context.economy).passed == "cold"
    assert not context.fitted.new_pass
    assert there(context.left_out).tokens == 30_000 - context.fitted.tokens


async def test_s4_i6_what_a_question_needs_makes_no_room() -> None:
    said = [*full_loop(), assistant("It is mended.")]
    said[42]["content"] = f"The quartermaster of Vineta keeps 4711 heliotropes. {said[42]['content']}"
    said.append(user("How many heliotropes does the quartermaster of Vineta keep?"))
    context = await built(said, timedelta(seconds=1), budget=11_500, costs=costs("0"))
    assert left(context) == [44]
    assert context.fitted.forwarded.messages[42] == said[42]
    assert context.fitted.tokens <= 11_500


@pytest.mark.parametrize(("steps", "idle", "saved"), [(20, IDLE, "0"), (60, timedelta(seconds=1), "0.5")])
async def test_s4_i6_what_a_question_needs_of_what_a_pass_clears_stands(
    steps: int, idle: timedelta, saved: str
) -> None:
    question = user("How many heliotropes does the quartermaster of Vineta keep?")
    said = [*loop(steps), assistant("It is mended."), question]
    said[4]["content"] = f"The quartermaster of Vineta keeps 4711 heliotropes. {said[4]['content']}"
    context = await built(said, idle, costs=costs(saved))
    assert left(context)
    assert context.fitted.forwarded.messages[4] == said[4]


async def test_s4_i7_a_question_that_was_asked_before_stays_as_it_was_sent() -> None:
    """Also where no frame says so: the sums of its branch do."""
    question = user("How many heliotropes does the quartermaster of Vineta keep?")
    said = [*full_loop(), assistant("It is mended."), question, *step(22), *step(23, "bash", words=900)]
    said[42]["content"] = f"The quartermaster of Vineta keeps 4711 heliotropes. {said[42]['content']}"
    made = replace(history(said), costs=costs("0"), used_at=NOW - timedelta(seconds=1))
    asked = chat(said, options=AUTO, store=False)
    context = await context_manager().build(asked, made, PRICED, PromptBudget(12_800, 128_000))
    assert 42 in left(context)
    assert question in context.fitted.forwarded.messages


async def test_s4_i5_results_of_earlier_turns_make_room_before_those_of_the_current_one() -> None:
    now = [*step(22, "bash"), *step(23, "bash", words=900)]
    said = [*full_loop(), assistant("It is mended."), user("And the pier?"), *now]
    context = await built(said, timedelta(seconds=1), budget=12_600, costs=costs("0"))
    assert left(context)
    assert there(context.economy).passed == "paid"
    assert all(index < len(said) - len(now) for index in left(context))


async def test_s6_who_goes_back_saves_nothing_that_only_the_other_branch_left_out() -> None:
    back, plain = [
        await built(loop(20), frame=frame) for frame in (PromptFrame(left_out_tokens=60_000, borrowed=True), None)
    ]
    assert back.left_out is not None
    assert back.left_out == plain.left_out
    assert back.left_out.tokens > 0


@pytest.mark.parametrize("words", [150_000, 210_000], ids=["longer than the window", "of over a million characters"])
async def test_s6_a_document_that_no_window_holds_saves_a_whole_one(words: int) -> None:
    """Also one that is never put into a message."""
    document = RequestAttachment(content=prose(1, words), title="Log")
    context = await build([user("Who mends lamp 5?")], 3000, attachments=[document])
    assert context.fitted.tokens <= 3000
    assert there(context.left_out).tokens == 128_000 - context.fitted.tokens


async def test_s11_14_no_result_makes_room_for_what_is_remembered() -> None:
    said = [*full_loop(), assistant("It is mended."), user("Who mends lamps?")]
    name = " ".join(prose(1, 200).split())
    thing = MemoryEntity("mem_1", "user", None, "workflow", "wf_12", name, (), "created", 1, NOW, NOW)
    bare = (await built(said, timedelta(seconds=1), costs=costs("0"))).fitted
    more: Json = {"costs": costs("0"), "things": (thing,)}
    assert (await built(said, timedelta(seconds=1), **more)).fitted.forwarded.things
    context = await built(said, timedelta(seconds=1), budget=bare.tokens + 150, **more)
    assert left(context) == []
    assert context.fitted.forwarded.things == ()


@pytest.mark.parametrize(
    ("saved", "idle", "options"),
    [("0.5", timedelta(seconds=1), AUTO), ("0", IDLE, AUTO), ("0", timedelta(seconds=1), OBSERVE)],
    ids=["much saved", "cold", "observe"],
)
async def test_s4_i7_else_all_is_decided_anew(saved: str, idle: timedelta, options: ContextOptions) -> None:
    context = await built(full_loop(), idle, options, budget=11_000, costs=costs(saved))
    assert context.fitted.new_pass


async def test_s4_i7_what_an_earlier_turn_read_of_an_edited_file_stands_in_the_block() -> None:
    """Word for word, where its turn has left the window."""
    messages = [*tight_loop(), assistant("The lamps are lit."), user("Put out lamp 7.")]
    context = await built(messages, timedelta(seconds=1), budget=9000, costs=costs("0.5"))
    assert context.fitted.new_pass
    assert SPACED in str(context.fitted.forwarded.messages[-1]["content"])


async def test_s4_i7_signed_thoughts_of_the_turn_stay_with_what_they_are_bound_to() -> None:
    messages = loop(20)
    messages[-2]["thinking_blocks"] = [{"type": "thinking", "thinking": "So.", "signature": "s"}]
    assert left(await built(messages)) == []


def costs(saved: str) -> BranchCosts:
    """Sums of a branch that has saved so much."""
    return BranchCosts("gpt-4o", 12_000, 0, Decimal(1) + Decimal(saved), Decimal(1))


@pytest.mark.parametrize(("saved", "passes"), [("0.5", True), ("-0.01", False), ("0.00001", False)])
async def test_s4_i7_a_warm_pass_is_bought_out_of_savings_alone(saved: str, passes: bool) -> None:
    context = await built(loop(60), timedelta(seconds=1), costs=costs(saved))
    assert (there(context.economy).passed == "paid") is passes is bool(left(context))
    assert all(index <= 2 * 50 for index in left(context))


WRITTEN = json.dumps({"path": "src/lamps.py", "content": "The harbour has lamps. " * 200})


def writing(count: int, at: int = 0) -> list[Json]:
    """A loop of so many steps, one of which writes a file."""
    messages = loop(count)
    messages[1 + 2 * at : 3 + 2 * at] = [assistant(None, "w", name="write", arguments=WRITTEN), tool("w", "Written.")]
    return messages


def inputs(context: BuiltContext) -> list[str]:
    """What stands of the inputs of calls that write."""
    calls = [call["function"] for m in context.fitted.forwarded.messages for call in m.get("tool_calls") or ()]
    return [call["arguments"] for call in calls if call["name"] == "write"]


async def test_s4_i7_a_pass_leaves_out_what_was_written_long_ago() -> None:
    context = await built(writing(60), timedelta(seconds=1), costs=costs("0.5"))
    assert there(context.economy).passed == "paid"
    assert "characters are left out here" in inputs(context)[0]
    assert json.loads(inputs(context)[0])["path"] == "src/lamps.py"


async def test_s4_i7_what_was_just_written_stays() -> None:
    context = await built(writing(20, at=13))
    assert left(context) == OLD
    assert inputs(context) == [WRITTEN]


async def test_s11_12_a_pinned_call_stays_whole() -> None:
    messages = writing(60)
    conversed = conversation(messages, timedelta(seconds=1), costs=costs("0.5"))
    pinned = tuple(replace(m, pinned=True) if m.body is messages[1] else m for m in conversed.messages)
    asked = chat(messages, options=AUTO)
    context = await context_manager().build(
        asked, replace(conversed, messages=pinned), PRICED, PromptBudget(100_000, 128_000)
    )
    assert left(context)
    assert inputs(context) == [WRITTEN]


HOUR = {"cache_creation_input_token_cost_above_1hr": Decimal("0.000006")}
PRIORITY = {f"{name}_priority": 2 * price for name, price in PRICES.items()}


@pytest.mark.parametrize(
    ("mark", "tier", "passes"),
    [({}, "default", True), ({"ttl": "1h"}, "default", False), ({}, "priority", False)],
    ids=["for five minutes", "for an hour", "priority"],
)
async def test_s4_i7_a_warm_pass_is_weighed_at_the_price_of_writing_that_the_client_pays(
    mark: Json, tier: str, passes: bool
) -> None:
    marked = {"type": "text", "text": "Mend the harbour.", "cache_control": {"type": "ephemeral", **mark}}
    context = await built(
        [user([marked]), *loop(60)[1:]],
        timedelta(seconds=1),
        facts=replace(PRICED, prices=PRICES | HOUR | PRIORITY),
        request={"forward": {"model": "gpt-4o", "service_tier": tier}},
        costs=costs("0.04"),
    )
    assert bool(left(context)) is passes


async def test_s4_i7_a_short_session_buys_nothing() -> None:
    """A pass would not pay within 15 % of the answers that there were: carrying is cheaper than rewriting."""
    assert left(await built(loop(12), timedelta(seconds=1), costs=costs("5"))) == []


async def test_s6_observe_says_what_would_have_left() -> None:
    noted = (await built(loop(20), options=OBSERVE)).economy
    made = (await built(loop(20))).economy
    assert noted is not None
    assert made is not None
    assert noted.passed is None
    assert noted.clearable == pytest.approx(made.cleared, rel=0.2)


async def test_s4_i7_a_fault_of_economy_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("gateway.billing.passes.kept_results", broken)
    monkeypatch.setattr("gateway.billing.passes.kept_in_pass", broken)
    assert left(await built(loop(20))) == []
    assert (await built(tight_loop(), budget=9000)).fitted.tokens <= 9000


@pytest.mark.parametrize(
    ("has_left", "saved", "anew"), [(True, "0.5", True), (False, "0.5", False), (True, "0.0001", False)]
)
async def test_s4_i7_where_something_has_left_for_room_all_is_decided_anew_as_soon_as_it_pays(
    has_left: bool, saved: str, anew: bool
) -> None:
    """The window is half empty then; it would fill up with what agents say between their calls. Of a window that held
    everything until now, nothing but results and inputs leaves."""
    said = [*loop(3), *(each for n in range(3, 160) for each in step(n, "bash", words=40))]
    names = [message.message_id for message in stored(said[1:5])]
    frame = PromptFrame(left_out=frozenset(filter(None, names))) if has_left else None
    context = await built(said, timedelta(seconds=1), budget=20_000, costs=costs(saved), frame=frame)
    assert context.fitted.new_pass is anew
    assert context.economy is not None
    assert not context.economy.is_cold
    if anew:
        assert context.economy.passed == "paid"
        assert context.economy.cleared > 0
        assert context.fitted.tokens < 0.5 * 13_000
        assert there(context.left_out).tokens >= context.economy.cleared


async def test_s4_i8_a_window_that_is_decided_anew_has_no_shorter_forms() -> None:
    """All later steps go by that: what referred to a result that left is in full again, or has left, too."""
    said = [*loop(3), *(each for n in range(3, 160) for each in step(n, "bash", words=40))]
    known = stored(said)
    first = await built(said, timedelta(seconds=1), budget=20_000)
    shaped = next(each for each in there(first.material).placed if each.place.message == 300)
    name = known[300].message_id or ""
    frame = PromptFrame(
        left_out=frozenset(each.message_id or "" for each in known[1:5]),
        forms={name: {**said[300], "content": "[Unchanged: as above.]"}},
        decisions={name: (FrozenDecision(shaped.content_id, "shape", 10),)},
    )
    goes_on = as_frozen(conversation(said, timedelta(seconds=1), costs=costs("0.5"), frame=frame))
    context = await context_manager().build(chat(said, options=AUTO), goes_on, PRICED, PromptBudget(20_000, 128_000))
    assert context.fitted.new_pass
    assert there(context.economy).passed == "paid"
    assert not there(context.material).shaped
