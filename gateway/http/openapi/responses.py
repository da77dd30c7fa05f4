"""Schemas of `/v1/responses`. OpenAI's own fields are OpenAI's to describe."""

from gateway.http.openapi.schemas import ANY_OBJECT, FLAG, TEXT, WHOLE, Schema, many, obj, or_null, ref


def response_schemas() -> dict[str, Schema]:
    """By name."""
    return {
        "ResponseRequest": {
            **obj(
                "OpenAI's fields and the gateway's own; those that it does not know go up untouched where the "
                "upstream speaks Responses.",
                "model input",
                model=TEXT,
                input={"anyOf": [TEXT, many(ANY_OBJECT)]},
                instructions=or_null(TEXT),
                tools=or_null(many(ANY_OBJECT)),
                stream=or_null(FLAG),
                store={**or_null(FLAG), "description": "`false`: nothing that was said is kept."},
                truncation=or_null({"enum": ["auto", "disabled"]}),
                max_output_tokens=or_null(WHOLE),
                metadata=or_null(ANY_OBJECT),
                conversation={"anyOf": [TEXT, ANY_OBJECT, {"type": "null"}]},
                attachments=or_null(many(ref("RequestAttachment"))),
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
                id=TEXT,
                object={"const": "response"},
                status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
                model=TEXT,
                output=many(ANY_OBJECT),
                usage=or_null(ANY_OBJECT),
                response_metadata=ref("ResponseMetadata"),
                conversation=or_null(ANY_OBJECT),
            ),
            "additionalProperties": True,
        },
        "ResponseEvent": {
            **obj("OpenAI's event.", "type sequence_number", type=TEXT, sequence_number=WHOLE),
            "additionalProperties": True,
        },
    }
