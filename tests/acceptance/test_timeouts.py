"""How long an upstream may take, for each model (guarantee §7)."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import httpx
import pytest

from tests.support.answers import Json, stored, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.raw import SSE_HEAD, End, Forever, Step, event, head, piece
from tests.support.reply import Reply

SHORT = 1.0
"""Longer than a loaded machine takes to connect, or lets a process that is to send something wait."""
LONG = 600.0
"""Longer than the client of a test waits: who answers it has waited for `SHORT`."""
ENOUGH = 10.0
WORD = {"id": "u", "object": "chat.completion.chunk", "created": 1, "model": "m"} | {
    "choices": [{"index": 0, "delta": {"content": "one"}, "finish_reason": None}]
}
PING = piece(b": ping\n\n")
MODELS: dict[str, Json] = {
    "hasty": {"timeout": SHORT},
    "hasty in words": {"timeout": str(SHORT)},
    "hasty to begin": {"timeout": {"first_byte": SHORT}},
    "hasty in the middle": {"timeout": {"idle": SHORT}},
    "hasty as LiteLLM says": {"stream_timeout": SHORT},
    "patient": {},
}
# model, streamed, what upstream does, the error (None: the client leaves first, since nobody gives up)
CASES: list[tuple[str, bool, tuple[Step, ...], bool]] = [
    ("hasty", False, (End.HANG,), True),
    ("hasty", True, (End.HANG,), True),
    ("hasty in words", False, (End.HANG,), True),
    ("hasty to begin", False, (End.HANG,), True),
    ("hasty to begin", False, (head(content_length="9"), End.HANG), True),
    ("hasty to begin", True, (SSE_HEAD, End.HANG), True),
    ("hasty to begin", True, (SSE_HEAD, Forever(PING, 0.05)), True),
    ("hasty to begin", True, (SSE_HEAD, event(WORD), End.HANG), False),
    ("hasty in the middle", True, (SSE_HEAD, event(WORD), End.HANG), True),
    ("hasty in the middle", True, (SSE_HEAD, event(WORD), Forever(PING, 0.05)), False),
    ("hasty in the middle", True, (SSE_HEAD, End.HANG), False),
    ("hasty in the middle", False, (End.HANG,), False),
    ("hasty as LiteLLM says", True, (SSE_HEAD, event(WORD), End.HANG), True),
    ("patient", True, (SSE_HEAD, event(WORD), End.HANG), False),
    ("patient", False, (End.HANG,), False),
]


@pytest.fixture(scope="module")
def module_shop(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    base: Json = {"model": "openai/gpt-4o", "api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    models = [{"model_name": name, "litellm_params": {**base, **own}} for name, own in MODELS.items()]
    patience = {"connect": LONG, "first_byte": LONG, "idle": LONG}
    return module_start_gateway({"model_list": models, "upstream": patience})


def test_s7_each_model_has_its_own_patience(module_shop: GatewayProcess, upstream: MockUpstream) -> None:
    """`timeout` of a model: a number, or connect, first_byte and idle; `stream_timeout` is LiteLLM's word for idle. All
    cases at once: each takes its time."""
    upstream.handler = lambda record: Reply(raw=CASES[int(record.body["messages"][0]["content"])][2])
    with ThreadPoolExecutor(len(CASES)) as pool:
        outcomes = [pool.submit(outcome, module_shop, number) for number in range(len(CASES))]
    expected = [
        None if not given_up else (200, "partial") if event(WORD) in steps else (504, "failed")
        for _, _, steps, given_up in CASES
    ]
    assert [each.result() for each in outcomes] == expected
    assert len(upstream.chats) == len(CASES)
    assert all(record.disconnected.wait(ENOUGH) for record in upstream.chats)


def outcome(gateway: GatewayProcess, number: int) -> tuple[int, str] | None:
    """Status and that of the bill, where the gateway gave up; None: nobody did, so that the client left."""
    model, streamed, _, given_up = CASES[number]
    body = {"model": model, "messages": [user(str(number))], "stream": streamed}
    with gateway.http() as client:
        if not given_up:
            assert leaves_first(client, body), number
            return None
        answer = client.post("/chat/completions", json=body)
    assert "upstream_timeout" in answer.text, number
    assert "[DONE]" not in answer.text
    bill = stored(gateway, answer.headers["x-request-id"])
    assert bill["response_metadata"]["cost"]["estimated"] is True
    return answer.status_code, bill["status"]


def leaves_first(client: httpx.Client, body: Json) -> bool:
    """Whether nothing but signs of life came until a client left that waits for longer than `SHORT`."""
    until = time.monotonic() + 1.5 * SHORT
    try:
        with client.stream("POST", "/chat/completions", json=body, timeout=1.5 * SHORT) as answer:
            return any(time.monotonic() > until for _ in answer.iter_raw())
    except httpx.ReadTimeout:
        return True


def test_s7_who_answers_in_time_is_waited_for(module_shop: GatewayProcess, upstream: MockUpstream) -> None:
    """The numbers are seconds."""
    upstream.handler = lambda _: Reply(text="done", delay_first=SHORT / 5)

    def asked(case: tuple[str, bool]) -> httpx.Response:
        body = {"model": case[0], "messages": [user("hi")], "stream": case[1]}
        return module_shop.post("/chat/completions", json=body)

    with ThreadPoolExecutor() as pool:
        for answer in pool.map(asked, product(MODELS, (False, True))):
            assert answer.status_code == 200
            assert "upstream_timeout" not in answer.text
