"""Anthropic's API as the gateway serves it: its paths, and what requests and answers hold."""

from typing import Any

from gateway.api.openapi.schemas import ANY_OBJECT, TEXT, WHOLE, Schema, many, obj, or_null, ref


def message_paths() -> dict[str, Any]:
    events = {"schema": ref("MessageEvent"), "description": "One event of Anthropic's each, under its name."}
    answered = {"application/json": {"schema": ref("Message")}, "text/event-stream": events}
    counted = {"application/json": {"schema": ref("CountedTokens")}}
    return {
        "/v1/messages": {"post": _post("Ask a model in Anthropic's words", answered)},
        "/v1/messages/count_tokens": {"post": _post("Count the tokens of such a request", counted)},
    }


def message_schemas() -> dict[str, Schema]:
    """Their schemas. Anthropic's own fields are as its documentation has them."""
    return {
        "MessagesRequest": {
            **obj(
                "Anthropic's request. Fields that are not named here go up untouched to Anthropic, and nowhere else.",
                "model messages",
                messages={**many(ANY_OBJECT), "minItems": 1},
                max_tokens={**WHOLE, "description": "Required, but for counting."},
                conversation={"description": "The conversation to continue.", "anyOf": [TEXT, ANY_OBJECT]},
                attachments=or_null(many({"anyOf": [TEXT, ref("RequestAttachment")]})),
                context=or_null(ref("Context")),
            ),
            "additionalProperties": True,
        },
        "Message": {
            **obj(
                "Anthropic's message, with the gateway's bill.",
                "id type role content model usage response_metadata",
                type={"const": "message"},
                role={"const": "assistant"},
                content=many(ANY_OBJECT),
                stop_reason=or_null(TEXT),
                usage=ANY_OBJECT,
                response_metadata=ref("ResponseMetadata"),
            ),
            "additionalProperties": True,
        },
        "MessageEvent": {**obj("Anthropic's event.", "type", type=TEXT), "additionalProperties": True},
        "CountedTokens": obj(
            "Tokens of a prompt.", "input_tokens", input_tokens=WHOLE, context_management=or_null(ANY_OBJECT)
        ),
        "MessagesError": obj(
            "Anthropic's error shape.", "type error", type={"const": "error"}, error=ANY_OBJECT, request_id=TEXT
        ),
    }


def _post(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "Anthropic's error shape.", "content": _json("MessagesError")}
    responses = {"200": {"description": "Done.", "content": content}, "default": refused}
    return {
        "summary": summary,
        "responses": responses,
        "requestBody": {"required": True, "content": _json("MessagesRequest")},
    }


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": ref(name)}}
