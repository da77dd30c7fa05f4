"""Schemas of what clients send and get. Where the code declares a shape, the schema is made of that declaration."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.api.classic.classic_chat import ClassicMessage
from gateway.api.conversations.replay_request import ReplayField
from gateway.api.request.gateway_fields import AgentField, ContextField
from gateway.api.request.remembered_entities import MemoryField, RememberedEntities
from gateway.api.request.validation import MAX_CHOICES
from gateway.billing.metadata import FIELDS_ONLY_WHERE_THEY_SAY_SOMETHING
from gateway.core.config.setting_sections import KeyFields
from gateway.core.types.artifacts import ArtifactPlan, RequestAttachment
from gateway.core.types.bill import NOT_ON_THE_BILL, ResponseMetadata
from gateway.inspection.settings_in_force import LINK

Schema = dict[str, Any]
REF = "#/components/schemas/{model}"
MODELS = {
    "ResponseMetadata": "ResponseMetadata",
    "ContextUtilizationMetadata": "ContextUtilization",
    "ArtifactUsageRecord": "ArtifactUsage",
    "ContextPlanningUsage": "PlanningUsage",
    "ContextPlanningCost": "PlanningCost",
    "CostMetadata": "Cost",
    "UsageMetadata": "Tokens",
    "ContextField": "Context",
    "ModelsField": "ContextModels",
    "AgentField": "Agent",
    "MemoryField": "Memory",
    "RememberedEntities": "ThingsToRemember",
    "ThingField": "ThingToRemember",
    "RequestAttachment": "RequestAttachment",
    "ArtifactPlan": "Plan",
    "ArtifactDecision": "ArtifactDecision",
    "ProcessingStrategy": "Strategy",
    "ReplayField": "ReplayRequest",
    "ReplayAgentField": "ReplayAgent",
    "ToolResultField": "ToolResult",
    "ClassicMessage": "ClassicMessage",
    "KeyFields": "KeyFields",
    "SpendBudget": "KeyBudget",
    "RateLimits": "KeyLimits",
    "ContextDefaults": "KeyContext",
}
"""Names in the code, and in the description."""
BOUNDS = {"ge": "minimum", "le": "maximum"}
"""As pydantic names those of decimals."""


def ref(name: str) -> Schema:
    return {"$ref": REF.format(model=name)}


def many(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def or_null(of: Schema) -> Schema:
    return {"anyOf": [of, {"type": "null"}]}


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
UNIX: Schema = {"type": "integer", "description": "Unix seconds."}
USD: Schema = {"description": "USD; null where a price is not known.", "anyOf": [NUMBER, {"type": "null"}]}
SCHEMA_BY_KIND = {"": TEXT, "whole": WHOLE, "number": NUMBER, "flag": FLAG, "unix": UNIX, "usd": USD}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
METADATA: Schema = {
    "type": "object",
    "description": "Up to 16 strings of up to 512 characters; keys of up to 64.",
    "additionalProperties": {"type": "string", "maxLength": 512},
    "maxProperties": 16,
}


def obj(description: str, required: str = "", optional: str = "", /, **properties: Schema) -> Schema:
    """An object.
    `required`: names of properties, with spaces between; each of which nothing else is said may have its type behind a
    colon (`SCHEMA_BY_KIND`: a text without one), and a `?` where it may be null; `optional`: more of them."""
    known = {**_named(required), **_named(optional), **properties}
    found: Schema = {"type": "object", "description": description, "properties": known}
    return {**found, "required": [*_named(required)]} if required else found


def _named(fields: str) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for each in fields.split():
        name, _, kind = each.rstrip("?").partition(":")
        found[name] = or_null(SCHEMA_BY_KIND[kind]) if each.endswith("?") else SCHEMA_BY_KIND[kind]
    return found


class _DecimalNumbers(GenerateJsonSchema):
    """Decimals are JSON numbers here."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {"type": "number"}


def schemas() -> dict[str, Schema]:
    return {**_declared(), **_of_bills(), **_of_chats(), **_of_conversations(), **_of_operations()}


def _declared() -> dict[str, Schema]:
    """The shapes that the code declares."""
    found: dict[str, Schema] = {}
    for kind in (
        ResponseMetadata,
        ContextField,
        AgentField,
        MemoryField,
        RememberedEntities,
        RequestAttachment,
        ArtifactPlan,
        KeyFields,
        ReplayField,
        ClassicMessage,
    ):
        mode: Any = "serialization" if kind is ResponseMetadata else "validation"
        made = TypeAdapter(kind).json_schema(mode=mode, ref_template=REF, schema_generator=_DecimalNumbers)
        found |= {**made.pop("$defs", {}), kind.__name__: made}
    named = {MODELS[name]: _renamed(schema) for name, schema in found.items()}
    named["ClassicMessage"]["additionalProperties"] = True
    said = named["KeyFields"]  # null says nothing; the tenant is that of the key that asks, where none is named
    del said["required"]
    said["properties"] = {name: each if "anyOf" in each else or_null(each) for name, each in said["properties"].items()}
    bill, used = named["ResponseMetadata"], named["ContextUtilization"]
    bill["required"] = ["request_id", "conversation_id", "upstream_id", "model", "routing_path", "timings_ms"]
    for name in ("usage", "cost", "context_utilization"):
        bill["properties"][name] = bill["properties"][name]["anyOf"][0]
    bill["properties"] |= {"economics": ref("Economy"), "cache": ref("CacheBreak")}
    asked = "Only where `context.cite` asks for it."
    bill["properties"]["citations"] = {**many(ref("Citation")), "description": asked}
    bill["properties"]["citations_dropped"] = {**WHOLE, "description": asked}
    for name in NOT_ON_THE_BILL:
        del named["ArtifactUsage"]["properties"][name]
    for schema in (used, named["ArtifactUsage"], named["PlanningUsage"], named["PlanningCost"]):
        optional = FIELDS_ONLY_WHERE_THEY_SAY_SOMETHING
        schema["required"] = [name for name in schema["properties"] if name not in optional]
    used["properties"] |= {
        "economics": ref("Economics"),
        "artifacts_standing": {**ref("Counted"), "description": "Artifacts that stand as earlier requests left them."},
        "artifacts_omitted": {**ref("Counted"), "description": "Artifacts that were decided on and are not listed."},
        "plan": ref("Plan"),
    }
    used["required"].remove("artifacts_processed")  # the first chunk of a stream has it not yet
    return named


def _renamed(value: Any) -> Any:
    """A schema with its references renamed, without pydantic's titles, and with JSON Schema's names of bounds."""
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if name != "title" or not isinstance(each, str)}
    found = {BOUNDS.get(name, name): _renamed(each) for name, each in kept.items()}
    if "$ref" in found:
        found["$ref"] = REF.format(model=MODELS[found["$ref"].rpartition("/")[2]])
    if isinstance(text := found.get("description"), str):
        found["description"] = LINK.sub(r"\1", text)
    return found


def _of_bills() -> dict[str, Schema]:
    return {
        "Counted": obj("How many, and their characters as forwarded.", "count chars", count=WHOLE, chars=WHOLE),
        "Economy": obj(
            "What the client's own request would have cost, beside what was billed: USD as texts.",
            "mode direct_cost billed_cost net_saving",
            "cleared_tokens:whole",
            holdout={**FLAG, "description": "With `context.economy_holdout`: whether the conversation goes direct."},
            mode={"enum": ["auto", "observe"]},
            net_saving={**TEXT, "description": "Below 0 where it cost more."},
            estimated_saving={**TEXT, "description": "With `observe`: what `auto` would have saved."},
            bounced=obj(
                "Results that were read again within a few steps of being cut. The bill has what they cost.",
                "tokens",
                "tokens:whole",
                cost={**or_null(TEXT), "description": "USD; null where no price is known."},
            ),
            **{"pass": {"enum": ["cold", "paid"], "description": "Old tool results left in this request."}},
        ),
        "CacheBreak": obj(
            "Only where the provider read less from its cache than what was forwarded before promises.",
            "broke_at promised_tokens:whole cached_tokens:whole",
            broke_at={**TEXT, "description": "`model`, `ttl`, `tools`, `system`, `message N` or `provider`."},
        ),
        "Economics": obj(
            "What a plan saves beside what it costs, and what this request saved.",
            "",
            "saved_tokens:whole expected_requests:whole saving:usd planning_cost:usd invalidated_tokens:whole "
            "invalidation_cost:usd applied:flag realised_tokens:whole realised_saving:usd",
            pays=or_null(FLAG),
            pending={**FLAG, "description": "The saving is an estimate; later bills realise it."},
        ),
        "Usage": {
            **obj(
                "What the upstream reported, and what all models of the request cost together.",
                "prompt_tokens:whole completion_tokens:whole total_tokens:whole cost:usd",
                cost_details={"type": "object", "additionalProperties": USD},
            ),
            "additionalProperties": True,
        },
    }


def _of_chats() -> dict[str, Schema]:
    conversation = obj("The conversation that it belongs to.", "id", id=TEXT)
    ours = {
        "conversation": conversation,
        "response_metadata": ref("ResponseMetadata"),
        "agent": obj("Who answered, where it was named.", "id type", id=TEXT, type=TEXT),
        "usage": or_null(ref("Usage")),
    }
    choices = many(ANY_OBJECT)
    kept = {"status": {"enum": ["complete", "partial", "failed"]}, "metadata": METADATA}
    return {
        "ChatRequest": {
            **obj(
                "OpenAI's request. The fields below are the gateway's, or are read by it; all others go up untouched.",
                "model messages",
                "max_tokens:whole? max_completion_tokens:whole? user? safety_identifier?",
                model={"type": "string", "minLength": 1, "maxLength": 512},
                messages={"type": "array", "items": ANY_OBJECT, "minItems": 1},
                conversation={
                    "description": "The conversation to continue.",
                    "anyOf": [TEXT, conversation, {"type": "null"}],
                },
                attachments=or_null(many({"anyOf": [TEXT, ref("RequestAttachment")]})),
                context=or_null(ref("Context")),
                agent={"description": "Who answers: a name, or more.", "anyOf": [TEXT, ref("Agent"), {"type": "null"}]},
                memory=or_null(ref("Memory")),
                store={**or_null(FLAG), "description": "`false`: nothing that was said is kept."},
                metadata=or_null(ANY_OBJECT),
                stream=or_null(FLAG),
                stream_options=or_null(ANY_OBJECT),
                n=or_null({"type": "integer", "minimum": 1, "maximum": MAX_CHOICES}),
            ),
            "additionalProperties": True,
        },
        "ChatCompletion": {
            **obj("OpenAI's answer with its bill.", "id model choices", id=TEXT, model=TEXT, choices=choices, **ours),
            "additionalProperties": True,
        },
        "ChatCompletionChunk": {
            **obj(
                "OpenAI's chunk; the first and the finish chunk have the bill.", "id", id=TEXT, choices=choices, **ours
            ),
            "additionalProperties": True,
        },
        "DryRun": obj(
            "What would be forwarded, and what it would cost.",
            "object model messages response_metadata estimated_cost prompt_tokens:whole",
            object={"const": "context.dry_run"},
            messages=many(ANY_OBJECT),
            response_metadata=ref("ResponseMetadata"),
            estimated_cost=or_null(obj("Of the primary call.", "min max", min=USD, max=USD)),
        ),
        "CompressRequest": {
            **obj(
                "A chat's request, or one in Anthropic's words, of which no model is asked.",
                "model messages",
                model={"type": "string", "minLength": 1, "maxLength": 512},
                messages={"type": "array", "items": ANY_OBJECT, "minItems": 1},
                context=or_null(ref("Context")),
                tools=or_null(many(ANY_OBJECT)),
                system={"description": "Anthropic's: a text, or blocks.", "anyOf": [TEXT, many(ANY_OBJECT)]},
            ),
            "additionalProperties": True,
        },
        "Compressed": obj(
            "The messages to be sent, in the words of those that came, and the bill of making them.",
            "messages tokens_before tokens_after response_metadata",
            messages=many(ANY_OBJECT),
            system={"description": "Anthropic's: a text, or blocks.", "anyOf": [TEXT, many(ANY_OBJECT)]},
            tokens_before=WHOLE,
            tokens_after=WHOLE,
            response_metadata=ref("ResponseMetadata"),
        ),
        "StoredCompletion": {
            **obj(
                "A completion with its bill; without choices where its content was not stored.",
                "id object created:unix model choices status response_metadata",
                object={"const": "chat.completion"},
                choices=choices,
                **ours,
                **kept,
            ),
            "additionalProperties": True,
        },
        "StoredCompletions": page("StoredCompletion"),
        "StoreMessage": {
            **obj("A message that a completion answers.", "id role", id=TEXT, role=TEXT, content=or_null(TEXT)),
            "additionalProperties": True,
        },
        "StoreMessages": page("StoreMessage"),
        "DeletedCompletion": deleted("chat.completion.deleted"),
        "MetadataUpdate": obj("Replaces the metadata as a whole.", "metadata", metadata=or_null(METADATA)),
        "ConversationUpdate": obj(
            "Replaces the metadata as a whole, or the team task; what is not named stays.",
            metadata=or_null(METADATA),
            team_task=or_null(TEXT),
        ),
        "Error": obj("OpenAI's error.", "error", error=ref("ErrorDetails")),
        "ErrorDetails": obj(
            "What went wrong; `param` names the field.",
            "message type param? code?",
            upstream={"description": "The upstream's own words, where they are not in OpenAI's shape."},
        ),
    }


def page(of: str) -> Schema:
    """A page of objects."""
    ends = {"first_id": or_null(TEXT), "last_id": or_null(TEXT), "has_more": FLAG}
    data = many(ref(of))
    return obj("A page.", "object data has_more", object={"const": "list"}, data=data, **ends)


def deleted(kind: str) -> Schema:
    return obj("It is gone.", "id object deleted", id=TEXT, object={"const": kind}, deleted={"const": True})


def _of_conversations() -> dict[str, Schema]:
    spent = spent_fields()
    turn = obj(
        "One turn, all requests of its tool loop together.",
        "number:whole request_ids status created_at:unix usage cost",
        request_ids=many(TEXT),
        status={"enum": ["complete", "partial", "failed"]},
        **spent,
    )
    agents = many(
        obj("What one agent took.", "agent requests usage cost", agent=or_null(TEXT), requests=WHOLE, **spent)
    )
    attachment: dict[str, Schema] = {
        "id": TEXT,
        "object": {"const": "conversation.attachment"},
        "created_at": UNIX,
        "title": or_null(TEXT),
        "source": or_null(TEXT),
        "attachment_type": TEXT,
        "size_chars": WHOLE,
        "number": WHOLE,
        "index": obj(
            "Of a large document: how far it is indexed.", "status progress", status=TEXT, progress={"type": "number"}
        ),
        "file_id": {**TEXT, "description": "The file of `/v1/files` that it was read from, where that is kept here."},
    }
    item = {**ANY_OBJECT, "description": "OpenAI's item.", "required": ["type"]}
    pinned = {"pinned": {**FLAG, "description": "It stays in every window; left out where it is not pinned."}}
    exported = {"const": "conversation.export"}
    new = {**many(ref("NewItem")), "minItems": 1, "maxItems": 20}
    return {
        "Conversation": obj(
            "OpenAI's conversation; one alone has its totals and its latest turns.",
            "id object created_at:unix metadata",
            "updated_at:unix session?",
            object={"const": "conversation"},
            metadata=METADATA,
            team_task={**TEXT, "description": "What its agents work on, up to 5 KiB; left out where there is none."},
            totals=obj("All of it.", "turns requests usage cost", turns=WHOLE, requests=WHOLE, **spent, agents=agents),
            turns=many(turn),
            warnings=many(TEXT),
        ),
        "Conversations": page("Conversation"),
        "NewConversation": obj(
            "A conversation to begin.",
            metadata=or_null(METADATA),
            items=or_null({**many(ref("NewItem")), "maxItems": 20}),
            team_task=or_null(TEXT),
        ),
        "DeletedConversation": deleted("conversation.deleted"),
        "Item": {**item, "required": ["id", "type"], "properties": pinned},
        "NewItem": {**item, "required": [], "properties": pinned},
        "ItemUpdate": obj("Whether the item stays in every window.", "pinned", pinned=FLAG),
        "Items": page("Item"),
        "NewItems": obj("Items to append.", "items", items=new),
        "Attachment": obj(
            "An attached document; one alone has its content.",
            "id object title attachment_type",
            "content offset:whole next_offset:whole?",
            **attachment,
        ),
        "Attachments": page("Attachment"),
        "DeletedAttachment": deleted("conversation.attachment.deleted"),
        "ConversationExport": {
            **obj("All that a conversation is.", "object version", object=exported, version=WHOLE),
            "additionalProperties": True,
        },
    }


def spent_fields() -> dict[str, Schema]:
    """Tokens and cost of several requests together."""
    return {
        "usage": ref("Tokens"),
        "cost": obj(
            "What all models cost together.",
            "planning_cost:usd total_cost:usd currency priced:flag estimated:flag",
            currency={"const": "USD"},
        ),
    }


def _of_operations() -> dict[str, Schema]:
    model = obj("OpenAI's model object.", "id object", id=TEXT, object={"const": "model"}, created=UNIX, owned_by=TEXT)
    return {
        "Model": {**model, "additionalProperties": True},
        "Models": obj("What may be asked for.", "object data", object={"const": "list"}, data=many(ref("Model"))),
        "Health": obj("Whether it serves.", "status", status=TEXT, reason=TEXT, details=ref("Statistics")),
        "Statistics": {
            **obj("What the process keeps, how often that was of use, and what is under way.", "memory caches"),
            "properties": {"memory": ANY_OBJECT, "caches": ANY_OBJECT, "hooks": ANY_OBJECT},
            "additionalProperties": True,
        },
        "About": obj(
            "What this is, and where to look.",
            "name version description links",
            links={"type": "object", "additionalProperties": TEXT},
        ),
    }
