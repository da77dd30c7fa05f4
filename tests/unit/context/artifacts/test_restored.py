"""Restored tool steps, as messages or as text, over random conversations (guarantee §3.3, §4 I3, I6, I7)."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context import BuiltContext, ContextManager, PlannerAccess
from gateway.context.artifacts.collect import steps_as_text
from gateway.context.assembly.shown_block import without_block_items
from gateway.conversations.message_forms import for_origin
from gateway.core.config.settings import ContextSettings
from gateway.core.types.chat import ModelDeployment, PromptBudget
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, new_message
from tests.support.strict_chat import violations
from tests.unit.making import FACTS, assistant, chat, context_manager, stored, tool, user

Json = dict[str, Any]
ANYWHERE = ModelDeployment("m", "m", "openai/m", "http://127.0.0.1:9/v1", None, operator_key=False)
ORIGINS = ["openai https://a", "gemini"]
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


@dataclass(frozen=True)
class Plan:
    """One turn: who answers, the tools of its first request and of the later ones, parallel calls of each step."""

    origin: str
    tools: bool
    later_tools: bool
    steps: list[int]
    attached: bool
    says: bool
    kept: frozenset[int]
    """Which earlier steps the client sends itself, by number."""


PLANS = st.builds(
    Plan,
    origin=st.sampled_from(ORIGINS),
    tools=st.booleans(),
    later_tools=st.booleans(),
    steps=st.lists(st.integers(1, 3), max_size=2),
    attached=st.booleans(),
    says=st.booleans(),
    kept=st.just(frozenset()) | st.frozensets(st.integers(0, 5), max_size=3),
)


@dataclass
class Simulation:
    """A conversation as the gateway keeps it, turn by turn."""

    path: list[ConversationMessage] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    manager: ContextManager = field(default_factory=lambda: context_manager(ContextSettings()))

    def store(self, message: ConversationMessage) -> None:
        number = len(self.path)
        self.path.append(replace(message, message_id=f"msg_{number}", sequence_number=number))

    def restored(self, kept: frozenset[int]) -> frozenset[str]:
        steps = [n for n, m in enumerate(self.path) if m.body.get("tool_calls")]
        sent = {steps[n] for n in kept if n < len(steps)}
        sent |= {n for n, m in enumerate(self.path) if m.role == "tool" and max(s for s in steps if s < n) in sent}
        return frozenset(m.message_id or "" for n, m in enumerate(self.path) if n not in sent)

    def request(self, plan: Plan, new: list[Json], *, tools: bool) -> BuiltContext:
        """Builds the context and keeps the new messages as a commit would."""
        sent = [new_message(body) for body in new]
        ids = self.restored(plan.kept)
        history = ConversationHistory(
            "conv_1", False, (), (*self.path, *sent), stored=len(self.path), restored_count=len(ids), restored_ids=ids
        )
        forward = {"model": "gpt-4o", "tools": TOOLS} if tools else {"model": "gpt-4o"}
        request = chat(new, forward=forward)
        if plan.attached and new[0]["role"] == "user":
            attachment: Any = {"content": f"document of {new[0]['content']}", "title": "t"}
            request = chat(new, forward=forward, attachments=[as_attachment(attachment)])
        asking = PlannerAccess(replace(ANYWHERE, origin=plan.origin))
        build = self.manager.build(
            request, for_origin(history, plan.origin), FACTS, PromptBudget(100_000, 128_000), asking
        )
        built = asyncio.run(build)
        assert built.material is not None
        current = built.material.current - (len(built.material.messages) - len(sent))
        for index, message in enumerate(sent):
            block = built.fitted.forwarded
            here = index == current and block.rendered is not None
            self.store(
                replace(message, rendered=block.rendered, shown_in_full=block.shown_in_full) if here else message
            )
        return built

    def turn(self, number: int, plan: Plan) -> Iterator[tuple[bool, BuiltContext]]:
        """Each request of the turn: whether it has tools, and what was built."""
        tools = plan.tools or bool(plan.steps)
        yield tools, self.request(plan, [user(f"question {number}")], tools=tools)
        for step, width in enumerate(plan.steps):
            ids = [f"call_{n}" for n in range(width)]
            calling = assistant(
                "let me look" if plan.says else None, *ids, arguments=json.dumps({"at": [number, step]})
            )
            self.store(replace(new_message({**calling, "reasoning_content": "bound"}), origin=plan.origin))
            new = [tool(each, f"result {number}-{step}-{each}.") for each in ids]
            self.results += [message["content"] for message in new]
            yield plan.later_tools, self.request(plan, new, tools=plan.later_tools)
        self.store(replace(new_message(assistant(f"answer {number}")), origin=plan.origin))


def as_attachment(values: Json) -> Any:
    from gateway.core.types.artifacts import RequestAttachment

    return RequestAttachment(**values)


def says(message: Json) -> str:
    return json.dumps(message, ensure_ascii=False)


@given(plans=st.lists(PLANS, min_size=1, max_size=6))
def test_whoever_is_asked_gets_whole_pairs_and_each_result_once(plans: list[Plan]) -> None:
    simulation = Simulation()
    before: dict[str, list[Json]] = {}
    for number, plan in enumerate(plans):
        for tools, built in simulation.turn(number, plan):
            messages = built.fitted.forwarded.messages
            assert violations({"model": "gpt-4o", "messages": messages}) == []
            everything = "\n".join(map(says, messages))
            assert [everything.count(result) for result in simulation.results] == [1] * len(simulation.results)
            if not any(other.kept for other in plans):
                check_append_only(before.get(plan.origin, []), messages, tools=tools)
            check_who_is_shown_text(simulation, plan, messages, tools=tools)
            before[plan.origin] = messages


def check_append_only(before: list[Json], messages: list[Json], *, tools: bool) -> None:
    """§4 I7, per model: all that this provider was sent before, as long as nothing has to become text."""
    if tools or not any(message["role"] == "tool" for message in before):
        assert messages[: len(before)] == before


def check_who_is_shown_text(simulation: Simulation, plan: Plan, messages: list[Json], *, tools: bool) -> None:
    """§3.3: at a turn's first request nobody without tools, and nobody else than their maker, is sent restored steps;
    and what the client sends itself is forwarded as sent."""
    sent_itself = {m.message_id for m in simulation.path} - simulation.restored(plan.kept)
    kept = [m.body for m in simulation.path if m.role == "tool" and m.message_id in sent_itself]
    assert all(body in messages for body in kept)
    if messages[-1]["role"] != "user":
        return
    made_by = {says(m.body): m.origin for m in simulation.path if m.body.get("tool_calls")}
    assert all(m["role"] != "tool" or tools or m in kept for m in messages)
    if not kept:
        calls = [m for m in messages if m.get("tool_calls")]
        assert all(made_by[says(message)] == plan.origin for message in calls)


def path_of(*bodies: Json) -> ConversationHistory:
    path = tuple(stored(bodies))
    return ConversationHistory(
        "conv_1", False, (), (*path, new_message(user("now"))), stored=len(path), restored_count=len(path)
    )


def as_text(history: ConversationHistory) -> list[tuple[str, str]]:
    found = steps_as_text(history, without_block_items, has_tools=False, origin=None)
    assert found.removed == len(history.messages) - len(found.history.messages)
    assert found.history.stored == history.stored - found.removed
    assert found.history.new_messages == history.new_messages
    return [(a.content, a.call.arguments if a.call else "") for a in found.artifacts]


def test_what_a_step_cannot_show_is_noted_once() -> None:
    """Also where another step has a document, which is read later."""
    picture: Json = {"type": "image_url", "image_url": {"url": "data:,"}}
    results = [{"type": "text", "text": "Here."}, picture], [{"type": "file", "file": {"filename": "a.txt"}}]
    path = path_of(user("q"), assistant(None, "x", "y"), *map(tool, ("x", "y"), results), assistant("a"))
    found = steps_as_text(path, without_block_items, has_tools=False, origin=None)
    noted = "Here.\n[Not shown, as it is no text: image_url]"
    assert found.with_documents({}) is found
    assert [each.content for each in found.artifacts] == [noted, "[Not shown, as it is no text: file]"]
    shown, document = found.with_documents({(1, 0): "Lamps."}).artifacts
    assert (shown.content, "Lamps." in document.content, "Not shown" in document.content) == (noted, True, False)


def test_repeated_ids_are_paired_in_their_order() -> None:
    calling = assistant(None, "x", "x")
    for number, call in enumerate(calling["tool_calls"]):
        call["function"]["arguments"] = f"{number}"
    assert as_text(path_of(user("q"), calling, tool("x", "one"), tool("x", "two"), assistant("a"))) == [
        ("one", "0"),
        ("two", "1"),
    ]


def test_a_custom_tools_input_and_pictures_among_results() -> None:
    calling: Json = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
    }
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert as_text(path_of(user("q"), calling, tool("x", [{"type": "text", "text": "seen"}, picture]))) == [
        ("seen\n[Not shown, as it is no text: image_url]", "ls")
    ]


def test_without_a_user_message_there_is_no_place_for_a_block() -> None:
    history = path_of(assistant(None, "x"), tool("x", "one"), assistant("a"))
    history = replace(history, messages=history.messages[:-1])
    assert as_text(history) == []


def test_results_that_are_to_be_answered_stay_behind_an_answer() -> None:
    """Added as items, with nothing sent: as text, they would leave the old answer as the last message."""
    asked = user("q"), assistant(None, "w"), tool("w", "old"), user("p")
    added = assistant(None, "x"), tool("x", "one"), assistant(None, "y"), tool("y", "two")
    for said, found in (((), ["old", "one", "two"]), ((assistant("a"),), ["old"])):
        history = path_of(*asked[:3], assistant("o"), asked[3], *said, *added)
        history = replace(history, messages=history.messages[:-1])
        assert [text for text, _ in as_text(history)] == found


@pytest.mark.parametrize("ids", [frozenset(), frozenset({"msg_1"}), frozenset({"msg_2"})])
def test_a_step_of_which_the_client_sent_anything_is_left_alone(ids: frozenset[str]) -> None:
    history = path_of(user("q"), assistant(None, "x"), tool("x", "one"), assistant("a"))
    assert as_text(replace(history, restored_ids=ids)) == []
