"""Schemas of chat requests and answers that all APIs share. OpenAI documents its own fields."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.api.request.gateway_fields import AgentField, ContextField
from gateway.api.request.remembered_entities import MemoryField
from gateway.api.request.validation import ChatFields
from gateway.api.shapes import AgentName, Json, NamedConversation, Usd, many, said, shape
from gateway.core.types import bill
from gateway.core.types.artifacts import ArtifactPlan, RequestAttachment

ATTACHED = {"attachments?": str | list[str | RequestAttachment] | None}
CONVERSATION = "The conversation to continue."
KEPT = {"store?": said(bool | None, "`false`: nothing that was said is kept.")}
MESSAGES = {"messages": Annotated[list[Json], Field(min_length=1)]}
MODEL = {"model": Annotated[str, Field(min_length=1, max_length=512)]}
OURS = {
    **ATTACHED,
    **KEPT,
    "agent?": said(str | AgentField | None, "Who answers: a name, or more."),
    "context?": ContextField | None,
    "memory?": MemoryField | None,
    "metadata?": Json | None,
    "stream?": bool | None,
}
READ_ELSEWHERE = ("n", "max_tokens", "max_completion_tokens", "stream_options")
ChatBody = shape(
    "ChatRequest",
    "OpenAI's request. The fields below are the gateway's, or are read by it; all others go up untouched.",
    MODEL
    | MESSAGES
    | OURS
    | {f"{name}?": ChatFields.model_fields[name].annotation for name in READ_ELSEWHERE}
    | {"conversation?": said(str | NamedConversation | None, CONVERSATION), "user? safety_identifier?": str | None},
    is_open=True,
)
Usage = shape(
    "Usage",
    "What the upstream reported, and what all models of the request cost together.",
    {"prompt_tokens completion_tokens total_tokens": int, "cost": Usd, "cost_details?": dict[str, Usd]},
    is_open=True,
)

# Parts of bills that no dataclass describes.

Counted = shape("Counted", "How many, and their characters as forwarded.", {"count chars": int})
Bounced = shape(
    "BouncedResults",
    "Results that were read again within a few steps of being cut. The bill has what they cost.",
    {"tokens": int, "cost?": said(str | None, "USD; null where no price is known.")},
)
Economy = shape(
    "Economy",
    "What the client's own request would have cost, beside what was billed: USD as texts.",
    {
        "mode": Literal["auto", "observe"],
        "direct_cost billed_cost": str,
        "net_saving": said(str, "Below 0 where it cost more."),
        "estimated_saving?": said(str, "With `observe`: what `auto` would have saved."),
        "pass?": said(bill.PassKind, "Old tool results left in this request."),
        "cleared_tokens?": int,
        "holdout?": said(bool, "With `context.economy_holdout`: whether the conversation goes direct."),
        "bounced?": Bounced,
    },
)
CacheBreak = shape(
    "CacheBreak",
    "Only where the provider read less from its cache than what was forwarded before promises.",
    {
        "broke_at": said(str, "`model`, `ttl`, `tools`, `system`, `message N` or `provider`."),
        "promised_tokens cached_tokens": int,
    },
)
Economics = shape(
    "Economics",
    "What a plan saves beside what it costs, and what this request saved.",
    {
        "saved_tokens? expected_requests? invalidated_tokens? realised_tokens?": int,
        "saving? planning_cost? invalidation_cost? realised_saving?": Usd,
        "pays?": bool | None,
        "applied?": bool,
        "pending?": said(bool, "The saving is an estimate; later bills realise it."),
    },
)
Passage = shape("CitedPassage", "What was sent of it.", {"start end": int | None, "text": str})
Citation = shape(
    "Citation",
    "What an answer rests on, as it says itself.",
    {"artifact_id source": str, "title place": str | None, "passages": many(Passage), "choice?": int},
)
ASKED_FOR = "Only where `context.cite` asks for it."
ADDED_TO_BILLS = {
    "ResponseMetadata": {
        "economics": Economy,
        "cache": CacheBreak,
        "citations": said(many(Citation), ASKED_FOR),
        "citations_dropped": said(int, ASKED_FOR),
    },
    "ContextUtilization": {
        "economics": Economics,
        "artifacts_standing": said(Counted, "Artifacts that stand as earlier requests left them."),
        "artifacts_omitted": said(Counted, "Artifacts that were decided on and are not listed."),
        "plan": ArtifactPlan,
    },
}
"""Fields that bills have beside, or instead of, those of their dataclasses."""

# Answers.

BILL = {"response_metadata": bill.ResponseMetadata}
ADDED = {
    "conversation?": said(NamedConversation, "The conversation that it belongs to."),
    "agent?": said(AgentName, "Who answered, where it was named."),
    "usage?": Usage | None,
}
COMPLETION = {"id model": str, "choices": list[Json], **ADDED}
ChatCompletion = shape(
    "ChatCompletion",
    "OpenAI's answer with its bill.",
    {**COMPLETION, "response_metadata?": bill.ResponseMetadata},
    is_open=True,
)
ChatCompletionChunk = shape(
    "ChatCompletionChunk",
    "OpenAI's chunk; the first and the finish chunk have the bill.",
    {"id": str, "choices?": list[Json], "response_metadata?": bill.ResponseMetadata, **ADDED},
    is_open=True,
)
Estimate = shape("CostOfCall", "Of the primary call.", {"min max": Usd})
DryRun = shape(
    "DryRun",
    "What would be forwarded, and what it would cost.",
    {"object": Literal["context.dry_run"], "model": str, "messages": list[Json], **BILL}
    | {"estimated_cost": Estimate | None, "prompt_tokens": int},
)
