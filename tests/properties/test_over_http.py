"""The same checks on a real server: what the provider is sent, and the bill in the answer (guarantee §4)."""

import json

import httpx

from tests.properties.cases import FLAVOURS, single
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import Broken
from tests.properties.running import NOT_YET
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

SEEDS = 20


def test_s4_the_invariants_hold_on_the_wire(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    params = {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-upstream-0000"}
    info = {"max_input_tokens": 1_000_000, "max_output_tokens": 500, "tokenizer": "o200k_base"}
    entry = {"model_name": "exact", "litellm_params": params, "model_info": info}
    gateway = start_gateway({"model_list": [entry], "conversation": {"match": "off"}})
    answered = 0
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        for case in (single(seed, flavour) for flavour in FLAVOURS for seed in range(SEEDS)):
            case.document_chars = 8000
            case.body["model"] = "exact"
            del case.body["context"]["dry_run"]
            answer = client.post("/chat/completions", content=json.dumps(case.body).encode())
            if answer.status_code == 400:
                assert answer.json()["error"]["code"] == "context_length_exceeded", answer.text
                check_refusal(case, case.messages)
                continue
            assert answer.status_code == 200, answer.text
            found = client.get(f"/chat/completions/{answer.json()['id']}").json()
            figures = found["response_metadata"]["context_utilization"]
            sent = upstream.last.body or {}
            try:
                check_answer(case, case.messages, sent["messages"], figures)
            except Broken as broken:
                if broken.name not in NOT_YET:
                    raise
            answered += 1
    assert answered > 2 * SEEDS
