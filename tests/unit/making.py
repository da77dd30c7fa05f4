"""Requests, histories and models for unit tests, with what a test does not care about filled in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gateway.context import BuiltContext, ContextManager, ContextSources
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.config.settings import ContextSettings, Settings
from gateway.core.types.artifacts import Artifact, ContextGoal, RequestAttachment
from gateway.core.types.chat import ChatRequest, ContextOptions, ModelFacts, PromptBudget, RequestCaller, TurnBound
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, ConversationRef, new_message
from gateway.core.types.window import WindowInputs
from gateway.documents.file_reader import FileReader

NOW = datetime(2026, 11, 21, tzinfo=UTC)
FACTS = ModelFacts("gpt-4o", max_input_tokens=128_000, tokenizer="o200k_base")
OPTIONS = ContextOptions("auto", "auto", ContextGoal.SYNTHESIS)


class NoCache:
    """Every question is a miss."""

    async def get(self, key: str) -> bytes | None:
        return None

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [None] * len(keys)

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        return None

    async def evict(self, *groups: str) -> None:
        return None

    async def close(self) -> None:
        return None


def user(content: Any) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: Any, *call_ids: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    """An assistant message, with calls if ids are given."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if call_ids:
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": each, "type": "function", "function": dict(function)} for each in call_ids]
    return message


def tool(call_id: str, content: Any) -> dict[str, Any]:
    """A tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def system(content: str) -> dict[str, Any]:
    """A system message."""
    return {"role": "system", "content": content}


def stored(bodies: Iterable[dict[str, Any]], status: str = "complete") -> list[ConversationMessage]:
    """A path as the store gives it back."""
    return [
        replace(new_message(body), message_id=f"msg_{number}", sequence_number=number, status=status)
        for number, body in enumerate(bodies)
    ]


def chat(messages: Sequence[dict[str, Any]], **more: Any) -> ChatRequest:
    """A validated request; `more` names fields of `ChatRequest`."""
    fields: dict[str, Any] = {
        "request_id": "req_1",
        "caller": RequestCaller("tenant"),
        "model": "gpt-4o",
        "messages": tuple(messages),
        "forward": {"model": "gpt-4o"},
        "conversation": ConversationRef(),
        "attachments": (),
        "options": OPTIONS,
        "store": True,
        "stream": False,
        "include_usage": False,
        "choices": 1,
        "metadata": None,
        "arrived_at": NOW,
        "started": 0.0,
        "size": 0,
    }
    return ChatRequest(**{**fields, **more})


def history(
    messages: Sequence[dict[str, Any]],
    instructions: Sequence[dict[str, Any]] = (),
    attachments: Sequence[Artifact] = (),
) -> ConversationHistory:
    """A rebuilt conversation, all of it sent by the client."""
    path = tuple(replace(new_message(body), sequence_number=number) for number, body in enumerate(messages))
    return ConversationHistory("conv_1", True, tuple(instructions), path, attachments=tuple(attachments))


async def build(
    messages: Sequence[dict[str, Any]],
    budget: int | None,
    instructions: Sequence[dict[str, Any]] = (),
    attached: Sequence[Artifact] = (),
    attachments: Sequence[RequestAttachment] = (),
    forward: dict[str, Any] | None = None,
    settings: ContextSettings | None = None,
    facts: ModelFacts = FACTS,
) -> BuiltContext:
    """Makes the context of a request; unless `settings` say otherwise, of one that fills its budget."""
    request = chat([*instructions, *messages], attachments=tuple(attachments), forward=forward or {"model": "gpt-4o"})
    return await _made(request, history(messages, instructions, attached), budget, settings, facts)


async def build_of(
    conversation: ConversationHistory,
    budget: int | None,
    settings: ContextSettings | None = None,
    turns: TurnBound | None = None,
) -> BuiltContext:
    """The same for a conversation as it was rebuilt."""
    request = chat([m.body for m in conversation.new_messages])
    return await _made(request, conversation, budget, settings, FACTS, turns)


async def _made(
    request: ChatRequest,
    history: ConversationHistory,
    budget: int | None,
    settings: ContextSettings | None,
    facts: ModelFacts,
    turns: TurnBound | None = None,
) -> BuiltContext:
    return await context_manager(settings).build(request, history, facts, PromptBudget(budget, 128_000, turns=turns))


def context_manager(settings: ContextSettings | None = None, **sources: Any) -> ContextManager:
    """Makes contexts without a cache; unless `settings` say otherwise, such that fill their budgets.
    `sources`: what else contexts are read from (`ContextSources`)."""
    return ContextManager(
        settings=Settings(context=settings or ContextSettings(low_water=1)),
        counters=CounterRegistry(),
        sources=ContextSources(**{"files": FileReader(NoCache(), 1.0), **sources}),
    )


def material_of(built: BuiltContext) -> WindowInputs:
    """What a context was made of, which one that is forwarded as it was sent does not have."""
    assert built.material is not None
    return built.material
