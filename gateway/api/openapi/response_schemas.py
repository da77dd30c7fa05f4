"""Schemas of `/v1/responses`. OpenAI's own fields are OpenAI's to describe."""

from gateway.api.openapi.schemas import ANY_OBJECT, FLAG, TEXT, WHOLE, Schema, many, obj, or_null, ref


def response_schemas() -> dict[str, Schema]:
    """By name."""
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
