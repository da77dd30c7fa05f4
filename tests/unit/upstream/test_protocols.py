"""Which upstream is called in the words of a request's own API (guarantee §10.4)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest, UpstreamRefused
from gateway.core.types.chat import ModelDeployment, NativeRequest, RequestCaller
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.protocols import FORGET_SECONDS, NOT_SPOKEN, KnownProtocols
from gateway.upstream.routing.router import ConfiguredRouter
from tests.support.hand_clock import HandClock
from tests.unit.making import chat, user

PLAIN = NativeRequest("responses")
NEEDY = NativeRequest("responses", {"prompt": {"id": "p"}}, ("prompt",))
SEARCH = NativeRequest("responses", {"tools": [{"type": "web_search"}]}, hosted=(("tools[0]", "web_search"),))
CLAUDE = "anthropic/claude-sonnet-4-5"
FUNCTION = {"type": "function", "function": {"name": "clock"}}
LOCAL = "http://127.0.0.1:9/v1"
NO_PATH = {"error": {"message": "Invalid URL (POST /v1/responses)"}}


def deployed(
    model: str = "openai/m", base: str | None = LOCAL, info: dict[str, Any] | None = None, **params: Any
) -> ModelDeployment:
    """Where an entry of `model_list` is served."""
    named = {"model": model, "api_key": "sk-own", **({"api_base": base} if base else {}), **params}
    entry = {"model_name": "m", "litellm_params": named, "model_info": info or {}}
    settings = Settings.model_validate({"model_list": [entry]})
    return ConfiguredRouter(settings, ModelCatalogue()).deployment("m", RequestCaller("t"))


def refused(status: int, body: Any = NO_PATH) -> UpstreamRefused:
    return UpstreamRefused(status, body, {})


@pytest.fixture
def protocols(clock: HandClock) -> KnownProtocols:
    return KnownProtocols(clock)


@pytest.mark.parametrize(
    ("deployment", "protocol", "falls_back"),
    [
        (deployed(base=None), "responses", False),
        (deployed(info={"mode": "responses"}), "responses", False),
        (deployed(info={"supported_endpoints": ["/v1/chat/completions", "/v1/responses"]}), "responses", False),
        (deployed(info={"supported_endpoints": ["/v1/chat/completions"]}), "openai", False),
        (deployed(info={"mode": "chat"}), "responses", True),
        (deployed(), "responses", True),
        (deployed("anthropic/claude-sonnet-4-5", None), "litellm", False),
    ],
    ids=["OpenAI", "mode", "endpoints", "endpoints without it", "chat", "unknown", "litellm"],
)
def test_s10_4_what_is_known_of_an_upstream(
    protocols: KnownProtocols, deployment: ModelDeployment, protocol: str, falls_back: bool
) -> None:
    called, fallback = protocols.of(deployment, PLAIN)
    assert (called.protocol, fallback == deployment) == (protocol, falls_back)
    assert (called.api_base, called.api_key, called.origin) == (deployment.api_base, "sk-own", deployment.origin)


@pytest.mark.parametrize("status", NOT_SPOKEN)
def test_s10_4_an_unknown_upstream_is_asked_once_in_ten_minutes(
    protocols: KnownProtocols, clock: HandClock, status: int
) -> None:
    deployment = deployed()
    called, fallback = protocols.of(deployment, PLAIN)
    assert protocols.instead(called, fallback, PLAIN, refused(status)) == deployment
    clock.seconds = FORGET_SECONDS - 1
    assert protocols.of(deployment, PLAIN) == (deployment, None)
    clock.seconds += 2
    assert protocols.of(deployment, PLAIN)[0].protocol == "responses"


def test_s10_4_two_at_once_learn_it_both(protocols: KnownProtocols) -> None:
    deployment = deployed()
    asked = [protocols.of(deployment, PLAIN) for _ in range(2)]
    assert [protocols.instead(*each, PLAIN, refused(404)) for each in asked] == [deployment] * 2


def test_s10_4_needs_are_never_lost(protocols: KnownProtocols) -> None:
    """What no chat can say is asked of the upstream itself, and is a 400 once it has no such endpoint."""
    deployment = deployed()
    called, fallback = protocols.of(deployment, NEEDY)
    assert (called.protocol, fallback) == ("responses", None)
    for ask in (lambda: protocols.instead(called, None, NEEDY, refused(404)), lambda: protocols.of(deployment, NEEDY)):
        with pytest.raises(InvalidRequest) as told:
            ask()
        assert (told.value.param, told.value.code, told.value.status) == ("prompt", "unsupported_parameter", 400)
    with pytest.raises(InvalidRequest, match="prompt"):
        protocols.of(deployed("anthropic/claude-sonnet-4-5", None), NEEDY)


def test_s1_10_hosted_tools_are_left_out_or_refused(protocols: KnownProtocols, clock: HandClock) -> None:
    """§1.10: before a chat upstream, and before one that has turned out to be one, as `upstream.hosted_tools` says."""
    deployment, claude = deployed(), deployed("anthropic/claude-sonnet-4-5", None)
    assert protocols.of(claude, SEARCH) == (claude, None)
    called, fallback = protocols.of(deployment, SEARCH)
    assert protocols.instead(called, fallback, SEARCH, refused(404)) == deployment
    strict = KnownProtocols(clock, "refuse")
    called, fallback = strict.of(deployment, SEARCH)
    for ask in (lambda: strict.of(claude, SEARCH), lambda: strict.instead(called, fallback, SEARCH, refused(404))):
        with pytest.raises(InvalidRequest, match=r"tools\[0\] \(web_search\).*upstream\.hosted_tools"):
            ask()
    forced = replace(SEARCH, needs=("tool_choice",))
    with pytest.raises(InvalidRequest, match="tool_choice"):
        protocols.of(claude, forced)


GEMINI, VERTEX = "gemini/gemini-2.5-pro", "vertex_ai/claude-sonnet-4-5"
SERVER = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example/mcp", "require_approval": "never"}


@pytest.mark.parametrize(
    ("model", "tools", "left_out"),
    [
        ("openai/m", [{"type": "web_search"}], []),
        (CLAUDE, [{"type": "web_search_20250305", "name": "web_search"}], []),
        (CLAUDE, [FUNCTION, {"type": "web_search_preview_2025_03_11"}], ["web_search_preview_2025_03_11"]),
        (CLAUDE, [SERVER], []),
        (CLAUDE, [{**SERVER, "require_approval": "always"}, {**SERVER, "authorization": "x"}], ["mcp", "mcp"]),
        (CLAUDE, [{"type": "mcp", "server_label": "x", "connector_id": "connector_gmail"}], ["mcp"]),
        (VERTEX, [SERVER], ["mcp"]),
        (GEMINI, [{"type": "web_search"}], []),
        (GEMINI, [FUNCTION, {"type": "web_search"}, {"googleSearch": {}}], ["web_search"]),
        ("openrouter/anthropic/claude-sonnet-4.5", [{"type": "web_search"}], []),
    ],
)
def test_s1_10_hosted_tools_of_chats(
    protocols: KnownProtocols, clock: HandClock, model: str, tools: list[Any], left_out: list[str]
) -> None:
    """§1.10: what a provider runs itself goes up; what it would refuse, or would not be told, is named."""
    at, asked = deployed(model, None), chat([user("x")], forward={"model": "m", "tools": tools})
    found = protocols.of_chat(at, asked)
    assert list(found.left_out) == left_out
    assert found.forward.get("tools", []) == [each for each in tools if each.get("type") not in left_out]
    if left_out:
        with pytest.raises(InvalidRequest, match=rf"tools\[\d\] \({left_out[0]}\).*upstream\.hosted_tools"):
            KnownProtocols(clock, "refuse").of_chat(at, asked)


def test_s1_10_an_upstream_that_refuses_hosted_tools_is_asked_without(
    protocols: KnownProtocols, clock: HandClock
) -> None:
    """§1.10: some servers speak Responses and run nothing; what else they refuse is the client's to hear."""
    called, _ = protocols.of(deployed(), SEARCH)
    says = refused(400, {"error": {"message": "tools.0.type: web_search is not supported"}})
    assert protocols.taken(called, SEARCH) is SEARCH
    assert protocols.without_refused(called, SEARCH, says) == NativeRequest("responses")
    assert protocols.taken(called, SEARCH) == NativeRequest("responses")
    clock.seconds += FORGET_SECONDS + 1
    assert protocols.taken(called, SEARCH) is SEARCH
    openai, _ = protocols.of(deployed(base=None), SEARCH)
    for asked, native, refusal in (
        (called, SEARCH, refused(400, {"error": {"message": "temperature is too high"}})),
        (openai, SEARCH, says),
        (called, replace(SEARCH, needs=("tool_choice",)), says),
    ):
        with pytest.raises(UpstreamRefused):
            protocols.without_refused(asked, native, refusal)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"error": {"message": "The model `m` does not exist.", "code": "model_not_found"}}),
        (400, NO_PATH),
        (500, NO_PATH),
    ],
)
def test_s10_4_what_does_not_say_that_there_is_no_such_endpoint(
    protocols: KnownProtocols, status: int, body: Any
) -> None:
    deployment = deployed()
    called, fallback = protocols.of(deployment, PLAIN)
    with pytest.raises(UpstreamRefused):
        protocols.instead(called, fallback, PLAIN, refused(status, body))
    assert protocols.of(deployment, PLAIN)[0].protocol == "responses"


def test_s10_4_an_upstream_that_is_known_to_speak_it_is_never_taken_for_another(protocols: KnownProtocols) -> None:
    called, fallback = protocols.of(deployed(base=None), PLAIN)
    with pytest.raises(UpstreamRefused):
        protocols.instead(called, fallback, PLAIN, refused(404))
    assert protocols.of(deployed(base=None), PLAIN)[0].protocol == "responses"


def test_azure_serves_them_beside_its_second_api() -> None:
    classic = deployed("azure/mine", "https://x.openai.azure.com", api_version="2024-10-21")
    assert classic.url("chat/completions").endswith("/openai/deployments/mine/chat/completions?api-version=2024-10-21")
    called, fallback = KnownProtocols(HandClock()).of(classic, PLAIN)
    assert (called.url("responses"), fallback) == ("https://x.openai.azure.com/openai/v1/responses", None)
    assert called.provider_model == "mine"


@pytest.mark.parametrize(
    ("deployment", "protocol"),
    [
        (deployed("openai/gpt-5-pro", None), "responses"),
        (deployed("openai/gpt-4o", None), "openai"),
        (deployed("openai/gpt-5-pro"), "openai"),
        (deployed("openai/gpt-5-pro", None, {"mode": "chat"}), "openai"),
        (deployed("openai/m", info={"mode": "responses"}), "responses"),
        (deployed("azure/gpt-5-pro", "https://x.openai.azure.com"), "responses"),
    ],
    ids=["by the map", "others", "elsewhere", "configured", "configured elsewhere", "azure"],
)
def test_s10_4_a_chat_for_a_model_that_only_responses_serve(deployment: ModelDeployment, protocol: str) -> None:
    """litellm's map speaks of OpenAI's and Azure's servers; elsewhere a server of that name may well take chats."""
    assert deployment.protocol == protocol


def test_s10_4_without_a_model_list_the_map_counts_as_well() -> None:
    router = ConfiguredRouter(Settings(), ModelCatalogue())
    assert router.deployment("gpt-5-pro", RequestCaller("t", "sk-client")).protocol == "responses"


def test_internal_models_of_such_a_primary_are_asked_by_chat() -> None:
    router = ConfiguredRouter(Settings(), ModelCatalogue())
    caller = RequestCaller("t", "sk-client")
    primary = router.deployment("gpt-5-pro", caller)
    planner = router.internal("gpt-4o-mini", chosen=False, primary=primary, caller=caller)
    assert planner is not None
    assert (planner.protocol, planner.url("x"), planner.api_key) == ("openai", primary.url("x"), "sk-client")
