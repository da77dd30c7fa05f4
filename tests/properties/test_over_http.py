"""The same checks on a real server, by each API in turn: what goes up, and the bill (guarantee §4, §10)."""

import json

import httpx

from tests.properties.cases import FLAVOURS, at_edge, single
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import Broken
from tests.properties.running import NOT_YET
from tests.support.edges import EDGES, PATHS, said_by
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

SEEDS = 2


def test_s4_the_invariants_hold_on_the_wire(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    params = {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-upstream-0000"}
    info = {"max_input_tokens": 1_000_000, "max_output_tokens": 500, "tokenizer": "o200k_base"}
    entry = {"model_name": "exact", "litellm_params": params, "model_info": info}
    gateway = start_gateway({"model_list": [entry], "conversation": {"match": "off"}})
    answered = 0
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        for number, case in enumerate(single(seed, flavour) for flavour in FLAVOURS for seed in range(SEEDS)):
            case = at_edge(case, EDGES[number % len(EDGES)])
            case.document_chars = 8000
            case.body["model"] = "exact"
            del case.body["context"]["dry_run"]
            asked = json.dumps(said_by(case.edge, case.body)).encode()
            answer = client.post(f"/{PATHS[case.edge]}", content=asked)
            if answer.status_code == 400:
                assert refused_as_too_long(answer.json()["error"]), answer.text
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


def refused_as_too_long(error: dict[str, str]) -> bool:
    """In OpenAI's words or in Anthropic's."""
    return error.get("code") == "context_length_exceeded" or error["message"].startswith("prompt is too long")
