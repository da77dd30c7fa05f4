"""Schemas of single APIs: each function gives those of one, by name. What they share is in `schemas`."""

from typing import get_args

from gateway.api.conversations.context import PARTS
from gateway.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    METADATA,
    NUMBER,
    TEXT,
    UNIX,
    USD,
    WHOLE,
    Schema,
    deleted,
    many,
    obj,
    or_null,
    page,
    ref,
    spent_fields,
)
from gateway.core.config.setting_sections import Period, Role
from gateway.core.types.files import PURPOSES
from gateway.inspection.rebuilt_turns import REASONS

# Schemas of `/v1/responses`. OpenAI's own fields are OpenAI's to describe.


def response_schemas() -> dict[str, Schema]:
    return {
        "ResponseRequest": {
            **obj(
                "OpenAI's fields and the gateway's own; those that it does not know go up untouched where the "
                "upstream speaks Responses.",
                "model input",
                "instructions? max_output_tokens:whole?",
                input={"anyOf": [TEXT, many(ANY_OBJECT)]},
                tools=or_null(many(ANY_OBJECT)),
                stream=or_null(FLAG),
                store={**or_null(FLAG), "description": "`false`: nothing that was said is kept."},
                truncation=or_null({"enum": ["auto", "disabled"]}),
                metadata=or_null(ANY_OBJECT),
                context_management=or_null(many(ANY_OBJECT)),
                previous_response_id={**or_null(TEXT), "description": "The response behind which it goes on."},
                conversation={"anyOf": [TEXT, ANY_OBJECT, {"type": "null"}]},
                attachments=or_null(many({"anyOf": [TEXT, ref("RequestAttachment")]})),
                context=or_null(ref("Context")),
                agent={"anyOf": [TEXT, ref("Agent"), {"type": "null"}]},
                memory=or_null(ref("Memory")),
            ),
            "additionalProperties": True,
        },
        "Response": {
            **obj(
                "OpenAI's response with its bill.",
                "id object status model output response_metadata",
                object={"const": "response"},
                status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
                output=many(ANY_OBJECT),
                usage=or_null(ANY_OBJECT),
                response_metadata=ref("ResponseMetadata"),
                conversation=or_null(ANY_OBJECT),
            ),
            "additionalProperties": True,
        },
        "CompactRequest": {
            **obj(
                "What is to be compacted: a history by its name, or its items.",
                "model",
                input={"anyOf": [TEXT, many(ANY_OBJECT), {"type": "null"}]},
                previous_response_id=or_null(TEXT),
                conversation={"anyOf": [TEXT, ANY_OBJECT, {"type": "null"}]},
            ),
            "additionalProperties": True,
        },
        "CompactedResponse": obj(
            "The users' messages that were sent, then the item that stands for all.",
            "id object created_at:whole output usage",
            object={"const": "response.compaction"},
            output=many(ANY_OBJECT),
            usage=ANY_OBJECT,
        ),
        "DeletedResponse": obj("", "id object deleted", id=TEXT, object={"const": "response"}, deleted={"const": True}),
        "ResponseEvent": {
            **obj("OpenAI's event.", "type sequence_number", type=TEXT, sequence_number=WHOLE),
            "additionalProperties": True,
        },
    }


# Schemas of `/v1/files`, where files are kept here (guarantee §14.5).


def file_schemas() -> dict[str, Schema]:
    """An upload, a file, and a page of them."""
    purpose: Schema = {"enum": list(PURPOSES)}
    upload = obj(
        "A form with one file.",
        "file purpose",
        file={**TEXT, "format": "binary"},
        purpose=purpose,
        **{
            "expires_after[anchor]": {"const": "created_at"},
            "expires_after[seconds]": {**WHOLE, "minimum": 3600, "maximum": 2_592_000},
        },
    )
    file = obj(
        "OpenAI's file object, with `progress` while it is read in the background.",
        "id object bytes:whole created_at:unix expires_at:unix? filename purpose status status_details?",
        object={"const": "file"},
        purpose=purpose,
        status={"enum": ["uploaded", "processed", "error"]},
        progress={"type": "number", "minimum": 0, "maximum": 1},
    )
    page = obj(
        "Files; the next page is `after=` its `last_id`.",
        "object data first_id? last_id? has_more:flag",
        object={"const": "list"},
        data=many(ref("File")),
    )
    deleted = obj(
        "It is gone for good.", "id object deleted", id=TEXT, object={"const": "file"}, deleted={"const": True}
    )
    return {"FileUpload": upload, "File": file, "Files": page, "DeletedFile": deleted}


# Schemas of usage and costs as OpenAI tells them (guarantee §13.4).

GROUPED = ("project_id", "api_key_id")
USAGE_GROUPED = (*GROUPED, "user_id", "model")
KINDS = ("text", "audio", "image")


def organization_schemas() -> dict[str, Schema]:
    """Pages of buckets, by what their results tell of."""
    results = {
        "OrganizationCosts": ("OrganizationCost", _cost()),
        "OrganizationCompletions": ("CompletionsUsage", _completions()),
        "OrganizationEmbeddings": ("EmbeddingsUsage", _embeddings()),
    }
    found: dict[str, Schema] = {}
    for page_name, (name, result) in results.items():
        found |= {page_name: _page(name), f"{name}Bucket": _bucket(name), name: result}
    return found


def _page(name: str) -> Schema:
    return obj(
        "A page of buckets; the next one is `page=` its `next_page`.",
        "object data has_more:flag next_page?",
        object={"const": "page"},
        data=many(ref(f"{name}Bucket")),
    )


def _bucket(name: str) -> Schema:
    return obj(
        "A day, an hour or a minute (UTC), from `start_time` on and before `end_time`; empty where nobody asked.",
        "object start_time:unix end_time:unix results",
        object={"const": "bucket"},
        results=many(ref(name)),
    )


def _cost() -> Schema:
    named = {name: or_null(TEXT) for name in (*GROUPED, "line_item")}
    amount = obj("USD, with all their digits.", "value currency", value=NUMBER, currency={"const": "usd"})
    return obj(
        "What requests cost, as far as prices are known; null where it was not grouped by. With `include=net_saving` "
        "also what they would have cost without a gateway.",
        f"object amount quantity {' '.join(named)}",
        "unmetered_requests:whole conversation_id?",
        net_saving=or_null(amount),
        direct_cost=or_null(amount),
        object={"const": "organization.costs.result"},
        amount=amount,
        quantity=or_null(NUMBER),
        **named,
    )


def _completions() -> Schema:
    counted = ("input_tokens", "output_tokens", "input_cached_tokens", "input_cache_write_tokens",
               "input_uncached_tokens", "num_model_requests")  # fmt: skip
    unknown = [f"{side}_{kind}_tokens" for side in ("input", "input_cached", "output") for kind in KINDS]
    fields: dict[str, Schema] = {
        **dict.fromkeys(counted, WHOLE),
        **{name: or_null(TEXT) for name in (*USAGE_GROUPED, "service_tier")},
        **{name: or_null(WHOLE) for name in unknown},
        "batch": or_null(FLAG),
    }
    return obj(
        "Tokens of primary models; what is not counted apart is null.",
        f"object {' '.join(fields)}",
        object={"const": "organization.usage.completions.result"},
        **fields,
    )


def _embeddings() -> Schema:
    named = {name: or_null(TEXT) for name in USAGE_GROUPED}
    return obj(
        "Tokens that were embedded.",
        f"object input_tokens num_model_requests {' '.join(named)}",
        object={"const": "organization.usage.embeddings.result"},
        input_tokens=WHOLE,
        num_model_requests=WHOLE,
        **named,
    )


# Schemas of the memory of things: what its API takes and gives (guarantee §11.17).


def thing_schemas() -> dict[str, Schema]:
    """What is listed, and what may be remembered."""
    thing = obj(
        "A thing that is remembered; `id` is that of the memory, `thing_id` its own.",
        "id object type thing_id name aliases action times scope conversation_id? created_at:unix mentioned_at:unix "
        "expires_at:unix?",
        object={"const": "memory.thing"},
        aliases=many(TEXT),
        action={**TEXT, "description": "What was done with it last."},
        times={**WHOLE, "description": "How often it was noted; 0: it was only shown."},
        scope={"enum": ["conversation", "user"]},
    )
    conversation = obj(
        "A conversation that is about a thing.",
        "id object memory_id action times:whole mentioned_at:unix",
        object={"const": "memory.conversation"},
    )
    return {
        "MemoryThing": thing,
        "MemoryThings": page("MemoryThing"),
        "NewThings": {"anyOf": [ref("ThingToRemember"), ref("ThingsToRemember")]},
        "DeletedMemoryThing": deleted("memory.thing.deleted"),
        "ThingConversation": conversation,
        "ThingConversations": page("ThingConversation"),
    }


# Schemas of the trail: what administrators made, changed, saw and deleted (guarantee §12.12).

NUMBER_OF_EVENT = or_null(WHOLE)
DIGEST: Schema = {**TEXT, "pattern": "^[0-9a-f]{64}$"}


def trail_schemas() -> dict[str, Schema]:
    """An event, and a page of them."""
    event = obj(
        "What somebody did; `digest` is keyed, over the event and `previous_digest`, that of the event before.",
        "number at actor actor_name tenant action object_id ok details previous_digest digest",
        number={**WHOLE, "minimum": 1},
        at={**TEXT, "format": "date-time", "description": "UTC, to the microsecond."},
        actor=or_null({**TEXT, "description": "The id of the key; null: a command."}),
        actor_name=or_null({**TEXT, "description": "Of the key, or of the system's user who ran the command."}),
        tenant=or_null({**TEXT, "description": "Whose data it is about."}),
        object_id=or_null({**TEXT, "description": "What it was done to."}),
        ok={**FLAG, "description": "False for what was refused."},
        details={"type": "object", "additionalProperties": True},
        previous_digest=DIGEST,
        digest=DIGEST,
    )
    events = obj(
        "Events in the order of their numbers; the next page is `after=` its `last_id`.",
        "object data first_id last_id has_more:flag",
        object={"const": "list"},
        data=many(ref("TrailEvent")),
        first_id=NUMBER_OF_EVENT,
        last_id=NUMBER_OF_EVENT,
    )
    return {"TrailEvent": event, "TrailEvents": events}


# Schemas of the list of requests (guarantee §13.18).


def request_schemas() -> dict[str, Schema]:
    """A request, and a page of them."""
    request = obj(
        "A request that asked a model. `cost` is null as soon as one call has no price, `known_cost` is of those that "
        "have one; `net_saving` is below 0 where it is a loss.",
        "id object created_at:whole tenant status http_status:whole? error_code? model endpoint user? agent? key_id? "
        "project? conversation_id? completion_id? stream:flag prompt_tokens:whole completion_tokens:whole "
        "cached_tokens:whole? cache_write_tokens:whole? total_ms:whole? cost:usd? known_cost:usd? planning_cost:usd? "
        "direct_cost:usd? net_saving:usd? estimated:flag question?",
        object={"const": "request"},
        status={"enum": ["complete", "partial", "failed"]},
    )
    place = or_null({**TEXT, "description": "Where the list goes on, as `older` or `newer` of the next request."})
    requests = obj(
        "Requests in their order. One look reads a bounded number of them: a page may be short, and go on.",
        "object data has_more:flag older newer",
        object={"const": "list"},
        data=many(ref("ListedRequest")),
        older=place,
        newer=place,
    )
    return {"ListedRequest": request, "Requests": requests}


# Schemas of keys made at runtime (guarantee §12.1).

TIME: Schema = {"type": "string", "format": "date-time"}
ROLES = many({"enum": list(get_args(Role))})
SAID = ("name", "owner", "project")
PERIODS = get_args(Period)


def key_schemas() -> dict[str, Schema]:
    """What is shown of a key; what may be said of one is declared."""
    paged = {"first_id": or_null(TEXT), "last_id": or_null(TEXT), "has_more": FLAG}
    return {
        "Key": _key("What is known of a key."),
        "NewKey": _key("A key with what its holder sends; nobody can read that again.", key=TEXT),
        "Keys": obj(
            "Keys made at runtime, the latest in front, and behind them those of the configuration.",
            "object data first_id last_id has_more",
            object={"const": "list"},
            data=many(ref("Key")),
            **paged,
        ),
        "Rotation": obj(
            "For how long the key before counts.",
            grace_seconds={**NUMBER, "minimum": 0, "maximum": 604_800, "default": 0},
        ),
    }


def _parts() -> dict[str, Schema]:
    return {
        "roles": ROLES,
        "models": many(TEXT),
        "budgets": many(ref("KeyBudget")),
        "limits": ref("KeyLimits"),
        "context": ref("KeyContext"),
    }


def _key(description: str, **more: Schema) -> Schema:
    times = ("expires_at", "created_at", "updated_at", "rotated_at", "revoked_at")
    fields = {
        "id": TEXT,
        "object": {"const": "gateway.key"},
        "source": {"enum": ["runtime", "configuration", "token"]},
        **{name: or_null(TEXT) for name in (*SAID, "hint", "created_by")},
        "tenant": TEXT,
        **_parts(),
        **{name: or_null(TIME) for name in times},
        "retention_days": or_null(NUMBER),
        "file_bytes": or_null(WHOLE),
        "state": {"enum": ["active", "expired", "revoked"]},
        "spent_usd": obj("By period, in days of UTC.", " ".join(PERIODS), **dict.fromkeys(PERIODS, NUMBER)),
        "last_used_on": or_null({"type": "string", "format": "date"}),
        **more,
    }
    return obj(description, " ".join(fields), **fields)


# Schemas of past turns, and of replays.


def turn_schemas() -> dict[str, Schema]:
    spent = spent_fields()
    turn: dict[str, Schema] = {
        "id": TEXT,
        "object": {"const": "conversation.turn"},
        "number": WHOLE,
        "status": {"enum": ["complete", "partial", "unanswered"]},
        "created_at": or_null(UNIX),
        "request_ids": many(TEXT),
        "models": many(TEXT),
        "agents": many(TEXT),
        **spent,
    }
    request = obj(
        "One request of a turn: what it forwarded, why, and its bill.",
        "request_id sent sent_is_exact reason why usage cost",
        "completion_id? model created_at:unix",
        agent=or_null(obj("Who answered.", id=TEXT, type=TEXT)),
        status={"enum": ["complete", "partial", "failed"]},
        sent={**or_null(many(ANY_OBJECT)), "description": "The forwarded messages, rebuilt; null: not stored."},
        sent_is_exact={**FLAG, "description": "It is what was forwarded, equal as JSON."},
        reason={"description": "Why it is not.", "enum": [*REASONS, None]},
        why=or_null({**ANY_OBJECT, "description": "Strategy, reasons, window, and what was decided for artifacts."}),
        usage=or_null(spent["usage"]),
        cost=or_null(spent["cost"]),
        calls=many(ANY_OBJECT),
    )
    required = "id object number status created_at request_ids models agents usage cost"
    conversation = obj("Whose turn it is.", "id", id=TEXT)
    return {
        **_of_replays(spent),
        "Turn": obj("A turn of the current branch, and what it cost.", required, **turn),
        "Turns": page("Turn"),
        "TurnDetails": obj(
            "A turn with its messages and requests.",
            f"{required} conversation messages requests",
            **turn,
            conversation=conversation,
            messages=many(ref("StoreMessage")),
            requests=many(request),
        ),
    }


def _of_replays(spent: dict[str, Schema]) -> dict[str, Schema]:
    conversation = obj("Whose turns they are.", "id", id=TEXT)
    estimate = obj("The least and the most.", "min max", min=USD, max=USD)
    estimated = many(obj("One request.", "model estimated_cost", model=TEXT, estimated_cost=estimate))
    turn = obj("One turn.", "turn requests estimated_cost", turn=WHOLE, requests=estimated, estimated_cost=estimate)
    return {
        "ReplayEstimate": obj(
            "What the turns would cost.",
            "object conversation turns estimated_cost",
            object={"const": "conversation.replay.dry_run"},
            conversation=conversation,
            turns=many(turn),
            estimated_cost=estimate,
        ),
        "ReplayEvent": {
            "description": "The replay begins or ends; a piece of an answer; what became of a turn.",
            "anyOf": [
                obj(
                    "Begin or end; with the figures of its branch at the end.",
                    "object replay_id conversation from_turn:whole to_turn:whole status",
                    "turns:whole last_message_id?",
                    object={"const": "conversation.replay"},
                    conversation=conversation,
                    status={"enum": ["running", "complete", "needs_tool"]},
                    head={"enum": ["stays", "moved"]},
                    **spent,
                ),
                obj(
                    "A piece of an answer.", "object turn:whole content", object={"const": "conversation.replay.delta"}
                ),
                obj(
                    "What became of a turn, and what the requests of this run cost.",
                    "object turn:whole status request_id? request_ids usage cost",
                    object={"const": "conversation.replay.turn"},
                    status={"enum": ["complete", "needs_tool", "failed"]},
                    request_ids=many(TEXT),
                    model=or_null(TEXT),
                    agent=or_null(obj("Who answered.", id=TEXT, type=TEXT)),
                    message=or_null(ANY_OBJECT),
                    calls=many(ANY_OBJECT),
                    **spent,
                ),
            ],
        },
    }


# Schemas of windows as they are now, and of the classic API, which tells of them with each answer.


def windows() -> dict[str, Schema]:
    return {**_of_windows(), **_of_the_classic_api()}


def _of_windows() -> dict[str, Schema]:
    share = or_null(NUMBER)
    measured = {"tokens": WHOLE, "share_of_window": share, "share_of_budget": share}
    part = obj("Tokens of a part of the window.", " ".join(measured), **measured)
    names = ("artifact_id", "source", "artifact_type", "strategy")
    sizes = {"original_size_chars": WHOLE, "processed_size_chars": WHOLE}
    artifact = obj("Which artifact, and how much of it is left.", "", **dict.fromkeys(names, TEXT), **sizes)
    window: dict[str, Schema] = {
        "strategy": or_null(TEXT),
        "profile": or_null(TEXT),
        "context_window": or_null(WHOLE),
        "budget_tokens": or_null(WHOLE),
        **measured,
        "tokens_estimated": FLAG,
        "parts": obj("What fills it.", "", **{name: ref("WindowPart") for name in PARTS}),
        "messages_included": WHOLE,
        "left": obj(
            "What is not in it, or not as a whole.",
            "messages:whole turns:whole? artifacts_reduced artifacts_excluded",
            artifacts_reduced=many(artifact),
            artifacts_excluded=many(artifact),
        ),
        "warnings": many(TEXT),
    }
    passage = obj("What was sent of it.", "start end text", start=or_null(WHOLE), end=or_null(WHOLE), text=TEXT)
    citation = obj(
        "What an answer rests on, as it says itself.",
        "artifact_id source title? place? passages",
        passages=many(passage),
        choice=WHOLE,
    )
    segment = obj("A summary of old turns.", "id messages text", id=TEXT, messages=many(WHOLE), text=TEXT)
    return {
        "WindowPart": part,
        "Citation": citation,
        "Window": obj("How full a window is, and of what.", " ".join(window), **window),
        "ConversationContext": obj(
            "The window as the latest answered request left it; zeros and nulls with a `reason` where none did.",
            f"object conversation_id request_id created_at model segments memory reason {' '.join(window)}",
            object={"const": "conversation.context"},
            conversation_id=TEXT,
            request_id=or_null(TEXT),
            created_at=or_null(UNIX),
            model=or_null(TEXT),
            **window,
            segments=many(segment),
            memory=obj("What is remembered.", "things", things=WHOLE),
            reason=or_null(TEXT),
        ),
    }


def _of_the_classic_api() -> dict[str, Schema]:
    time: Schema = {"type": "string", "format": "date-time"}
    listed = {"conversation_id": TEXT, "id": TEXT, "created_at": time, "last_updated": time, "metadata": METADATA}
    turn = obj(
        "A message of the user, and what came of it.",
        "user_message agent_response timestamp mcp_tools_used",
        timestamp=or_null(time),
        mcp_tools_used=many(TEXT),
    )
    mentioned = {"mentioned_at": time, "action": TEXT}
    workflow = obj(
        "A workflow, with what was done with it last.",
        "spec_id name mentioned_at action aliases",
        aliases=many(TEXT),
        **mentioned,
    )
    mention = obj("A conversation.", "conversation_id mentioned_at action", conversation_id=or_null(TEXT), **mentioned)
    return {
        "ClassicAnswer": obj(
            "The answer, and how full the window was.",
            "response conversation_id? tools_used context response_metadata",
            tools_used=many(TEXT),
            tool_calls=many(ANY_OBJECT),
            context=ref("Window"),
            response_metadata=ref("ResponseMetadata"),
        ),
        "ClassicEvent": {
            "anyOf": [obj("A piece of the text.", "delta", delta=TEXT), ref("ClassicAnswer"), ref("Error")]
        },
        "ClassicConversation": obj("A conversation without its turns.", " ".join(listed), **listed),
        "ClassicConversations": obj(
            "A page.", "conversations has_more", conversations=many(ref("ClassicConversation")), has_more=FLAG
        ),
        "ClassicHistory": obj(
            "A conversation with its turns, the oldest first.",
            f"{' '.join(listed)} turn_count turns",
            **listed,
            turn_count=WHOLE,
            turns=many(turn),
        ),
        "ClassicWorkflows": obj(
            "The workflows that a conversation is about, the latest first.",
            "conversation_id workflows has_more:flag",
            workflows=many(workflow),
        ),
        "ClassicMentions": obj(
            "The conversations that are about a workflow, the latest first.",
            "spec_id conversations has_more:flag",
            conversations=many(mention),
        ),
        "ClassicCleared": obj("Done.", "conversation_id", conversation_id=TEXT, cleared=FLAG, deleted=FLAG),
        "ClassicHealth": obj("Whether it serves.", "status", status=TEXT, reason=TEXT, context=ref("Statistics")),
        "PromptInfo": obj(
            "The prompt profile that a message calls for.",
            "model mode? context",
            "source reason tokens:whole saved_tokens:whole monolith_tokens:whole",
            modes={"type": "object", "additionalProperties": WHOLE},
            context=or_null({**ANY_OBJECT, "description": "As `ConversationContext`."}),
        ),
    }
