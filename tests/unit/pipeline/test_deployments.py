"""Several deployments of one model: which is asked, and what happens when one fails (guarantee §12.5, §12.8)."""

import time
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, chat, user
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until
from tests.support.scraping import scrape, total

WINDOWS = {"one": 600, "two": 3000}


@pytest.fixture
def one(upstream: MockUpstream) -> MockUpstream:
    return upstream


@pytest.fixture
def two(elsewhere: MockUpstream) -> MockUpstream:
    return elsewhere


def entries(name: str, *places: MockUpstream, params: Any = ({}, {}), info: Any = ({}, {})) -> list[Json]:
    """Each name has deployments of its own, so that tests do not share their health."""
    return [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": place.base_url, "api_key": "sk-up", **more},
            "model_info": told,
        }
        for place, more, told in zip(places, params, info, strict=True)
    ]


@pytest.fixture(scope="module")
def module_routed(
    module_start_gateway: GatewayFactory, module_upstream: MockUpstream, module_elsewhere: MockUpstream
) -> GatewayProcess:
    both = module_upstream, module_elsewhere
    orders = {"order": 1}, {"order": 2}
    windows = [SMALL_MODEL_INFO | {"max_input_tokens": WINDOWS[name]} for name in ("one", "two")]
    listed = [
        *entries("pair", *both),
        *entries("failing", *both),
        *entries("ordered", *both, params=orders),
        *entries("vectors", *both, params=orders),
        *entries("windows", *both, params=orders[::-1], info=windows),
        *entries("stream", *both, params=orders),
        *entries("chained", *both),
    ]
    return module_start_gateway({"model_list": listed, "routing": {"cooldown": 1, "cooldown_max": 1}})


@pytest.fixture
def routed(module_routed: GatewayProcess, one: MockUpstream, two: MockUpstream) -> GatewayProcess:
    return module_routed


def ask(gateway: GatewayProcess, model: str, *messages: Json, **more: Any) -> Json:
    return chat(gateway, *messages, model=model, **more)


def text_of(answer: Json) -> str:
    found: str = answer["choices"][0]["message"]["content"]
    return found


def resting(gateway: GatewayProcess, model: str) -> float:
    gauges = (sample for sample in scrape(gateway) if sample.name == "gateway_deployment_resting")
    return sum(float(gauge.value) for gauge in gauges if f"openai/{model}@" in gauge.labels["deployment"])


def test_s12_5_a_conversation_stays_at_one_deployment(
    routed: GatewayProcess, one: MockUpstream, two: MockUpstream
) -> None:
    """Twelve conversations of three turns: each at one provider, together at both."""
    for number in range(12):
        said: list[Any] = []
        for turn in range(3):
            said.append(user(f"question {number}" if not turn else f"and {turn}?"))
            said.append(assistant(text_of(ask(routed, "pair", *said))))
    first_words = {
        name: [record.body["messages"][0]["content"] for record in place.chats]
        for name, place in {"one": one, "two": two}.items()
    }
    assert len(first_words["one"]) + len(first_words["two"]) == 36
    assert first_words["one"]
    assert first_words["two"]
    assert not set(first_words["one"]) & set(first_words["two"])


def test_s12_5_the_lowest_order_is_asked_and_comes_back_after_a_rest(
    routed: GatewayProcess, one: MockUpstream, two: MockUpstream
) -> None:
    for number in range(4):
        ask(routed, "ordered", user(f"before {number}"))
    assert (len(one.chats), len(two.chats)) == (4, 0)
    one.stop()
    try:
        for number in range(4):
            ask(routed, "ordered", user(f"meanwhile {number}"))
        assert len(two.chats) == 4
        assert resting(routed, "ordered") == 1
    finally:
        one.start()
    one.clear()
    wait_until(lambda: bool(ask(routed, "ordered", user("after")) and one.chats), "the first is asked again")
    assert resting(routed, "ordered") == 0


def test_s12_8_one_of_two_fails_and_no_request_does(
    routed: GatewayProcess, one: MockUpstream, two: MockUpstream
) -> None:
    """Requests go on; the one that fails is left alone but for one request after each rest."""
    two.handler = lambda record: Reply(status=500)
    began = time.monotonic()
    for number in range(24):
        ask(routed, "failing", user(f"question {number}"))
    rests = int(time.monotonic() - began)
    assert len(one.chats) == 24
    assert 3 <= len(two.chats) <= 3 + rests
    samples = scrape(routed)
    assert total(samples, "gateway_deployment_failures_total", code="upstream_500") == len(two.chats)
    assert total(samples, "gateway_deployment_in_flight") == 0
    page = httpx.get(f"{routed.url}/ui/health", trust_env=False).text
    assert f"openai/failing@{two.base_url.split('/')[2]}" in page
    two.handler = None
    two.clear()
    later = iter(range(10_000))
    wait_until(lambda: bool(ask(routed, "failing", user(f"later {next(later)}")) and two.chats), "it is asked again")
    assert resting(routed, "failing") == 0


def test_s12_8_failures_of_relayed_calls_count(routed: GatewayProcess, one: MockUpstream, two: MockUpstream) -> None:
    """A deployment that is away rests, and calls go elsewhere until it answers again."""

    def embed() -> None:
        assert routed.post("/embeddings", json={"model": "vectors", "input": "x"}).status_code == 200

    one.stop()
    try:
        for _ in range(4):
            embed()
        assert resting(routed, "vectors") == 1
        assert len(two.requests) == 4
    finally:
        one.start()
    one.clear()

    def is_asked() -> bool:
        embed()
        return bool(one.requests)

    wait_until(is_asked, "the first is asked again")
    assert resting(routed, "vectors") == 0
    assert total(scrape(routed), "gateway_deployment_in_flight") == 0


def test_s12_5_the_context_fits_whichever_deployment_answers(
    routed: GatewayProcess, one: MockUpstream, two: MockUpstream
) -> None:
    """The window is that of the deployment that is asked; where the large one fails, the small one gets less."""
    said: list[Any] = []
    for number in range(8):
        said += [user(f"{number} " + "word " * 100), assistant("noted " * 20)]
    said.append(user("And now?"))
    whole = ask(routed, "windows", *said)["response_metadata"]["context_utilization"]
    assert whole["budget_tokens"] > WINDOWS["one"]
    assert len(two.chats) == 1
    two.handler = lambda record: Reply(status=503)
    less = ask(routed, "windows", *said)["response_metadata"]["context_utilization"]
    assert less["tokens_used"] <= less["budget_tokens"] <= WINDOWS["one"]
    assert len(one.chats[0].body["messages"]) < len(two.chats[0].body["messages"])


def test_s12_8_a_stream_that_breaks_counts_against_its_deployment(
    routed: GatewayProcess, one: MockUpstream, two: MockUpstream
) -> None:
    one.handler = lambda record: Reply(text="one two three", cut_after=3)
    for number in range(3):
        body = {"model": "stream", "messages": [user(f"tell {number}")], "stream": True}
        assert "upstream_interrupted" in routed.post("/chat/completions", json=body).text
    wait_until(lambda: resting(routed, "stream") == 1, "it rests")


def test_s12_8_a_probe_finds_that_a_deployment_is_back(
    start_gateway: GatewayFactory, one: MockUpstream, two: MockUpstream
) -> None:
    listed = entries("probed", one, two, params=({"order": 1}, {"order": 2}))
    gateway = start_gateway({"model_list": listed, "routing": {"cooldown": 500, "cooldown_max": 500, "probe": 0.2}})
    one.stop()
    try:
        for number in range(3):
            ask(gateway, "probed", user(f"meanwhile {number}"))
        assert resting(gateway, "probed") == 1
    finally:
        one.start()
    wait_until(lambda: resting(gateway, "probed") == 0, "the probe")
    one.clear()
    ask(gateway, "probed", user("after"))
    assert len(one.chats) == 1
