"""Upstream's errors as the SDK's error classes, and the gateway's own (guarantee §7)."""

import re
from typing import Any

import openai
import pytest

from tests.support.answers import Json, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hello")]
CHAT = {"model": "gpt-4o", "messages": ASK}
CLASSES: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (409, openai.ConflictError),
    (413, openai.APIStatusError),
    (422, openai.UnprocessableEntityError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]


def refused(status: int) -> Json:
    """What a provider says, with a field of its own."""
    error = {"message": f"no: {status}", "type": "some_type", "param": "messages", "code": f"code_{status}"}
    return {"error": {**error, "innererror": {"x": 1}}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("own_key", [True, False], ids=["own key", "operator's key"])
@pytest.mark.parametrize(("status", "kind"), CLASSES)
def test_s7_upstream_errors_keep_status_body_and_retry_after(
    one_gateway: GatewayProcess,
    own_key_gateway: GatewayProcess,
    upstream: MockUpstream,
    make_client: ClientFactory,
    status: int,
    kind: type[openai.APIStatusError],
    own_key: bool,
    streamed: bool,
) -> None:
    """Upstream errors keep status, `Retry-After` and body; 401/403 for an operator's key: 502 without the body."""
    upstream.reply(
        status=status, json=refused(status), headers={"retry-after": "17", "x-ratelimit-limit-requests": "3"}
    )
    client = make_client(own_key_gateway if own_key else one_gateway)
    withheld = status in (401, 403) and not own_key
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
    error = caught.value
    assert len(upstream.chats) == 1, "nothing is retried"
    if withheld:
        assert isinstance(error, openai.InternalServerError)
        assert error.status_code == 502
        assert error.code == "upstream_auth"
        assert f"code_{status}" not in error.response.text
        assert f"no: {status}" not in error.response.text
    else:
        assert type(error) is kind
        assert error.status_code == status
        assert error.body == refused(status)["error"]
        assert error.response.headers["retry-after"] == "17"
        assert error.response.headers["x-ratelimit-limit-requests"] == "3"
    assert error.response.headers["x-request-id"].startswith("req_")


def test_s7_a_second_overflow_is_told(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """An overflow that comes again after the one refit is the client's, in OpenAI's words."""
    papers = [{"title": "Lamps", "content": "\n\n".join(f"Lamp {i} says hello to the sea." for i in range(100))}]
    overflow = {"message": "prompt is too long: 208310 tokens > 200000 maximum", "type": "invalid_request_error"}
    for _ in range(2):
        upstream.reply(status=400, json={"type": "error", "error": overflow})
    with pytest.raises(openai.BadRequestError) as caught:
        make_client(one_gateway).chat.completions.create(
            model="gpt-4o", messages=ASK, extra_body={"attachments": papers}
        )
    assert caught.value.code == "context_length_exceeded"
    message = caught.value.body["message"]  # type: ignore[index]
    assert re.match(r"This model's maximum context length is \d+ tokens", message), message
    assert upstream.queued == 0, "one refit, no more"
