"""Whether what goes to a client is, field by field, what the official SDK's own models say of Responses."""

import json
from typing import Any, get_args

from openai import BaseModel as SdkModel
from openai.types.responses import Response, ResponseStreamEvent

from tests.support.answers import Json, exact
from tests.support.gateway_process import GatewayProcess

OURS = {
    "response": {"response_metadata", "conversation", "agent", "store"},
    "usage": {"cost", "cost_details"},
    "custom_tool_call": {"status"},
    "image_generation_call": {"image_url"},
}
"""Fields that the SDK's models do not know: the gateway's own, and those that OpenAI sends all the same."""
_KINDS = get_args(get_args(ResponseStreamEvent)[0])
_EVENTS = {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in _KINDS}


def check_response(body: Json) -> Response:
    """The body as the SDK's model of a response; fails where that would have to be lenient."""
    found = Response.model_validate(body, strict=True)
    _check(found, "response")
    return found


def check_event(body: Json) -> Any:
    """An event as the SDK's model of its type."""
    kind = _EVENTS.get(body["type"])
    assert kind is not None, f"no event of the SDK's is {body['type']}"
    found = kind.model_validate(body, strict=True)
    _check(found, body["type"])
    return found


def _check(model: SdkModel, where: str) -> None:
    name = getattr(model, "object", None) or getattr(model, "type", None) or where.rpartition(".")[2]
    unknown = set(model.model_extra or {}) - OURS.get(str(name), set())
    assert not unknown, f"{where}: the SDK does not know {sorted(unknown)}"
    for field in type(model).model_fields:
        value = getattr(model, field)
        for index, each in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(each, SdkModel):
                _check(each, f"{where}.{field}" if each is value else f"{where}.{field}[{index}].{field}")


def create(gateway: GatewayProcess, body: Json, **headers: str) -> Json:
    """`POST /v1/responses`, not streamed; the body is checked."""
    answer = gateway.post("/responses", json=body, headers=_headers(headers), key=None)
    assert answer.status_code == 200, answer.text
    check_response(answer.json())
    found: Json = exact(answer.text)
    return found


def refused(gateway: GatewayProcess, body: Json, status: int = 400) -> Json:
    """The error that a request gets."""
    answer = gateway.post("/responses", json=body, headers=_headers({}), key=None)
    assert answer.status_code == status, answer.text
    found: Json = answer.json()["error"]
    return found


def events(gateway: GatewayProcess, body: Json, **headers: str) -> list[Json]:
    """A streamed response: its events, each checked, their names and numbers, too."""
    request = {**body, "stream": True}
    answer = gateway.post("/responses", json=request, headers=_headers(headers), key=None)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return read_events(answer.text)


def read_events(wire: str) -> list[Json]:
    """The events of a stream, each checked."""
    found: list[Json] = []
    assert wire.endswith("\n\n")
    for block in wire.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(found)
        check_event(event)
        found.append(exact(data.removeprefix("data: ")))
    return found


def _headers(more: dict[str, str]) -> dict[str, str]:
    return {"authorization": "Bearer sk-test", **{name.replace("_", "-"): value for name, value in more.items()}}
