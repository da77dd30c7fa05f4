"""Which deployment serves a model, with whose key (guarantee §1, §8)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.model_list import ModelEntry
from gateway.core.config.settings import Settings
from gateway.core.errors import ModelNotFound
from gateway.core.types.chat import ModelDeployment, NativeRequest, RequestCaller
from gateway.core.types.keys import KeyPolicy
from gateway.upstream.routing.catalogue import ModelCatalogue, split_provider, unsupported
from gateway.upstream.routing.protocols import KnownProtocols
from gateway.upstream.routing.router import ConfiguredRouter

CLIENT = RequestCaller("tenant", "sk-client")
NOBODY = RequestCaller("anonymous")
KEYS = {"auth": {"keys": [{"key": "gateway-key", "tenant": "a"}]}}
KNOWN = RequestCaller("a", None)


def entry(
    name: str = "m", model: str = "openai/served", info: dict[str, Any] | None = None, **params: Any
) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": model, **params}, "model_info": info or {}}


def router(*entries: dict[str, Any], **sections: Any) -> ConfiguredRouter:
    return ConfiguredRouter(Settings.model_validate({"model_list": entries, **sections}), ModelCatalogue())


def where(found: ModelDeployment) -> tuple[str, str, str, str | None, bool]:
    return found.api_base, found.provider_model, found.route, found.api_key, found.operator_key


def test_without_any_configuration_the_clients_own_key_goes_to_the_default_upstream() -> None:
    found = router().deployment("gpt-4o", CLIENT)
    assert where(found) == ("https://api.openai.com/v1", "gpt-4o", "openai/gpt-4o", "sk-client", False)
    assert router().deployment("gpt-4o", NOBODY).api_key is None


def test_the_operators_key_outranks_the_clients_at_the_default_upstream() -> None:
    upstream = {"api_key": "sk-own", "api_base": "http://local/v1/"}
    found = router(upstream=upstream).deployment("gpt-4o", CLIENT)
    assert where(found) == ("http://local/v1", "gpt-4o", "openai/gpt-4o", "sk-own", True)


def test_a_configured_model_goes_where_it_says_with_its_own_key() -> None:
    found = router(entry(api_base="http://own/v1/", api_key="sk-own")).deployment("m", CLIENT)
    assert where(found) == ("http://own/v1", "served", "openai/served", "sk-own", True)
    assert "sk-own" not in repr(found)


def test_a_model_that_names_no_key_gets_the_clients_own_when_no_keys_are_configured() -> None:
    found = router(entry(api_base="http://own/v1")).deployment("m", CLIENT)
    assert (found.api_key, found.operator_key) == ("sk-client", False)


def test_s8_a_gateway_key_never_goes_upstream() -> None:
    local = router(entry(api_base="http://own/v1"), **KEYS)
    assert local.deployment("m", KNOWN).api_key is None
    upstream = {"api_key": "sk-own", "unlisted": "relay"}
    with_default = router(entry(api_base="http://own/v1"), upstream=upstream, **KEYS)
    assert with_default.deployment("other", KNOWN).api_key == "sk-own"


def test_the_default_upstreams_key_goes_to_no_other_address() -> None:
    """Content and keys go to no provider that nobody chose: a model of another address names its own key or none."""
    other = router(entry(api_base="http://other/v1"), upstream={"api_key": "sk-openai"}, **KEYS)
    assert other.deployment("m", KNOWN).api_key is None
    same = router(entry(), upstream={"api_key": "sk-openai"}, **KEYS)
    assert same.deployment("m", KNOWN).api_key == "sk-openai"


def test_with_keys_configured_and_no_operators_key_unknown_models_do_not_exist() -> None:
    with pytest.raises(ModelNotFound) as raised:
        router(entry(api_base="http://own/v1"), **KEYS).deployment("other", KNOWN)
    assert (raised.value.status, raised.value.param) == (404, "model")


def test_s1_a_suggestion_names_only_models_that_the_key_may_ask() -> None:
    served = router(entry("gpt-4o"), entry("gpt-4-secret"), entry("ours-*"), **KEYS)
    for models, named in (((), "gpt-4-secret"), (("gpt-4o",), "gpt-4o"), (("small",), None)):
        asking = replace(KNOWN, key=KeyPolicy("key_1", "a", models=models))
        with pytest.raises(ModelNotFound) as raised:
            served.deployment("gpt-4-secre", asking)
        suggested = raised.value.message.partition("here.")[2]
        assert repr(named) in suggested if named else not suggested, models
        assert not models or "secret" not in suggested


@pytest.mark.parametrize(
    ("model", "base", "name"),
    [
        ("gpt-4o", "https://api.openai.com/v1", "gpt-4o"),
        ("openai/gpt-4o", "https://api.openai.com/v1", "gpt-4o"),
        ("groq/llama", "https://api.groq.com/openai/v1", "llama"),
        ("openrouter/meta/llama", "https://openrouter.ai/api/v1", "meta/llama"),
        ("deepseek/deepseek-chat", "https://api.deepseek.com/v1", "deepseek-chat"),
    ],
)
def test_known_providers_have_their_address(model: str, base: str, name: str) -> None:
    found = router(entry(model=model, api_key="sk-x")).deployment("m", CLIENT)
    assert (found.api_base, found.provider_model, found.route) == (base, name, model)


def test_a_provider_without_an_address_is_named() -> None:
    with pytest.raises(ModelNotFound, match="api_base"):
        router(entry(model="hosted_vllm/x")).deployment("m", CLIENT)


def test_what_a_deployment_adds_to_a_request() -> None:
    found = router(
        entry(
            api_base="http://own/v1", organization="org-1", extra_headers={"X-Team": "a"}, temperature=0.1, rpm=5,
            timeout=30, extra_body={"top_k": 4},
        ),
        upstream={"connect": 3, "idle": 4},
    ).deployment("m", CLIENT)  # fmt: skip
    assert found.headers == {"X-Team": "a", "OpenAI-Organization": "org-1"}
    assert found.parameters == {"temperature": 0.1, "top_k": 4}  # as LiteLLM merges it
    assert (found.connect_timeout, found.first_byte_timeout, found.idle_timeout) == (3, 30, 4)


def test_two_entries_with_one_name_are_one_model() -> None:
    both = router(entry(api_base="http://one/v1"), entry(api_base="http://two/v1"))
    assert both.names == ["m"]
    assert [each.api_base for each in both.all_of("m", CLIENT)] == ["http://one/v1", "http://two/v1"]


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [("a", "openai", "a"), ("openai/a/b", "openai", "a/b"), ("meta-llama/x", "openai", "meta-llama/x")],
)
def test_the_provider_is_what_stands_before_the_first_slash_if_it_is_known(
    model: str, provider: str, name: str
) -> None:
    assert split_provider(model) == (provider, name)


@pytest.mark.parametrize(
    ("raw", "served"),
    [
        (entry(), True),
        (entry(model="gpt-4o"), True),
        (entry(model="anthropic/claude"), True),
        (entry(model="bedrock/converse/anthropic.claude"), True),
        (entry(model="antropic/claude"), False),
        (entry(model="antropic/claude", api_base="http://x/v1"), True),
        (entry(model="claude", custom_llm_provider="antropic"), False),
        (entry(model="azure/gpt-4o", api_base="https://x.openai.azure.com"), True),
        (entry(model="azure/gpt-4o"), False),
        (entry(model="azure/gpt-4o", api_base="https://x.openai.azure.com", client_secret="s"), False),
        (entry(model="hosted_vllm/x"), False),
        (entry(model="hosted_vllm/x", base_url="http://x/v1"), True),
    ],
)
def test_an_entry_that_cannot_be_served_says_why(raw: dict[str, Any], served: bool) -> None:
    assert (unsupported(ModelEntry.model_validate(raw)) is None) is served


@pytest.mark.parametrize(
    ("params", "protocol", "route"),
    [
        ({"model": "openai/gpt-4o"}, "openai", "gpt-4o"),
        ({"model": "gpt-4o"}, "openai", "gpt-4o"),
        ({"model": "meta-llama/llama", "api_base": "http://x/v1"}, "openai", "meta-llama/llama"),
        ({"model": "anthropic/claude-sonnet-4-5"}, "litellm", "claude-sonnet-4-5"),
        ({"model": "claude-sonnet-4-5"}, "litellm", "claude-sonnet-4-5"),
        ({"model": "claude-sonnet-4-5", "api_base": "http://x/v1"}, "openai", "claude-sonnet-4-5"),
        ({"model": "gemini/gemini-2.5-pro"}, "litellm", "gemini-2.5-pro"),
        ({"model": "house", "custom_llm_provider": "cohere_chat"}, "litellm", "house"),
    ],
)
def test_the_provider_decides_who_calls_it(params: dict[str, Any], protocol: str, route: str) -> None:
    """§9: `provider/model` as LiteLLM reads it."""
    found = router(entry(**params)).deployment("m", RequestCaller("t", "sk-c"))
    assert (found.protocol, found.provider_model) == (protocol, route)


@pytest.mark.parametrize(
    ("params", "url", "headers"),
    [
        (
            {"api_base": "https://x.openai.azure.com/", "api_version": "2024-10-21"},
            "https://x.openai.azure.com/openai/deployments/four/chat/completions?api-version=2024-10-21",
            {"api-key": "sk-op"},
        ),
        (
            {"api_base": "https://x.openai.azure.com/openai/v1"},
            "https://x.openai.azure.com/openai/v1/chat/completions",
            {"api-key": "sk-op"},
        ),
        (
            {"api_base": "https://x.openai.azure.com", "api_version": "preview", "azure_ad_token": "ey-token"},
            "https://x.openai.azure.com/openai/v1/chat/completions?api-version=preview",
            {"authorization": "Bearer ey-token"},
        ),
    ],
)
def test_azure_is_called_by_openais_protocol(params: dict[str, Any], url: str, headers: dict[str, str]) -> None:
    """§9: an Azure entry in LiteLLM's shape; its deployment stands in the address, its key in its own header."""
    found = router(entry(model="azure/four", api_key="sk-op", **params)).deployment("m", RequestCaller("t"))
    assert (found.url("chat/completions"), found.authorization) == (url, headers)
    assert (found.protocol, found.operator_key, found.parameters) == ("openai", True, {})


def test_a_clouds_credentials_are_the_operators() -> None:
    """§8: what no key names is still the operator's money; a client's key does not go to a cloud."""
    cloud = entry(model="bedrock/anthropic.claude", aws_region_name="us-east-1", temperature=0.5, rpm=5)
    found = router(cloud).deployment("m", RequestCaller("t", "sk-c"))
    assert (found.api_key, found.operator_key) == (None, True)
    assert (found.options, found.parameters) == ({"aws_region_name": "us-east-1"}, {"temperature": 0.5})
    assert Settings.model_validate({"model_list": [cloud]}).has_operator_key()
    assert not Settings.model_validate({"model_list": [entry(model="anthropic/claude")]}).has_operator_key()


def test_a_wildcard_serves_what_no_entry_names() -> None:
    listed = router(
        entry("gpt-4o", "openai/gpt-4o", api_base="http://one/v1"),
        entry("local/*", "hosted_vllm/*", api_base="http://two/v1"),
        entry("*", "openai/*", api_base="http://three/v1"),
    )
    assert where(listed.deployment("gpt-4o", CLIENT))[:3] == ("http://one/v1", "gpt-4o", "openai/gpt-4o")
    assert where(listed.deployment("local/qwen", CLIENT))[:3] == ("http://two/v1", "qwen", "hosted_vllm/qwen")
    assert where(listed.deployment("gpt-4o-mini", CLIENT))[:3] == (
        "http://three/v1",
        "gpt-4o-mini",
        "openai/gpt-4o-mini",
    )
    assert listed.facts("gpt-4o-mini").prices["input_cost_per_token"] == Decimal("1.5e-07")
    assert listed.names == ["gpt-4o"]


def test_what_litellm_keeps_to_itself_is_not_sent_and_its_prices_count() -> None:
    prices: dict[str, Any] = {"input_cost_per_token": "2e-07", "output_cost_per_token": 1e-06}
    params: dict[str, Any] = {"rpm": 10, "drop_params": True, "temperature": 0, "extra_body": {"top_k": 5}}
    listed = router(entry(api_base="http://own/v1", **prices, **params))
    assert listed.deployment("m", CLIENT).parameters == {"temperature": 0, "top_k": 5}
    expected = {"input_cost_per_token": Decimal("2e-07"), "output_cost_per_token": Decimal("0.000001")}
    assert listed.facts("m").prices == expected


def test_s1_keys_of_other_services_and_what_is_said_to_litellm_alone_are_in_no_request() -> None:
    keys: dict[str, Any] = {
        "langfuse_secret_key": "sk-lf",
        "aws_secret_access_key": "s",
        "azure_password": "p",
        "client_secret": "c",
    }
    told: dict[str, Any] = {
        "base_model": "gpt-4o",
        "supports_system_message": False,
        "litellm_metadata": {"a": "b"},
        "headers": {},
    }
    listed = router(entry(api_base="http://own/v1", top_k=5, chat_template_kwargs={"x": 1}, **keys, **told))
    assert listed.deployment("m", CLIENT).parameters == {"top_k": 5, "chat_template_kwargs": {"x": 1}}


def test_s6_a_table_of_tiers_beside_the_key_counts_and_is_not_sent() -> None:
    """YAML reads `5e-08` as a text."""
    low = {"range": [0, 256000], "input_cost_per_token": "5e-08", "output_cost_per_token": 4.5e-07}
    high = {"range": [256000, 1000000], "input_cost_per_token": 2.5e-07, "output_cost_per_token": "2e-06"}
    listed = router(entry(api_base="http://own/v1", tiered_pricing=[low, high]))
    assert listed.deployment("m", CLIENT).parameters == {}
    assert listed.facts("m").prices == {
        "input_cost_per_token": Decimal("5e-08"),
        "output_cost_per_token": Decimal("4.5e-07"),
        "input_cost_per_token_above_256k_tokens": Decimal("2.5e-07"),
        "output_cost_per_token_above_256k_tokens": Decimal("2e-06"),
    }


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, (3, 5, 4)),
        ({"timeout": 30}, (3, 30, 4)),
        ({"timeout": "30"}, (3, 30, 4)),
        ({"timeout": 30, "stream_timeout": "7"}, (3, 30, 7)),
        ({"timeout": {"idle": 9}}, (3, 5, 9)),
        ({"timeout": {"connect": 1, "first_byte": 2, "idle": 0.5}}, (1, 2, 0.5)),
        ({"timeout": {"idle": 9}, "stream_timeout": 7}, (3, 5, 9)),
    ],
)
def test_a_model_is_as_patient_as_it_says_and_else_as_all(params: dict[str, Any], expected: tuple[float, ...]) -> None:
    patience = {"connect": 3, "first_byte": 5, "idle": 4}
    found = router(entry(api_base="http://own/v1", **params), upstream=patience).deployment(
        "m", RequestCaller("t", "sk-c")
    )
    assert (found.connect_timeout, found.first_byte_timeout, found.idle_timeout) == expected
    assert "stream_timeout" not in found.parameters


@pytest.mark.parametrize("timeout", [0, -1, "soon", {"idle": 0}, {"total": 3}])
def test_a_patience_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        router(entry(timeout=timeout))


def internal(found: ConfiguredRouter, name: str, primary: str = "m", *, chosen: bool) -> str | None:
    """The route of an internal model for a primary one."""
    served = found.internal(name, chosen, found.deployment(primary, CLIENT), CLIENT)
    return f"{served.api_base} {served.route} {served.api_key}" if served else None


def test_s5_an_internal_model_is_one_of_model_list_or_at_the_primarys_own_upstream_with_the_same_key() -> None:
    own = entry(api_base="http://own/v1", api_key="sk-own")
    cheap = entry("cheap", "openai/small", api_base="http://other/v1", api_key="sk-other")
    both = router(own, cheap)
    assert internal(both, "cheap", chosen=True) == "http://other/v1 openai/small sk-other"
    assert internal(both, "named", chosen=True) == "http://own/v1 openai/named sk-own"
    assert internal(router(), "gpt-4o-mini", "gpt-4o", chosen=False) == (
        "https://api.openai.com/v1 openai/gpt-4o-mini sk-client"
    )


def test_s5_nobody_is_asked_for_a_default_model_that_nobody_chose_there() -> None:
    own = entry(api_base="http://own/v1", api_key="sk-own")
    assert internal(router(own), "gpt-4o-mini", chosen=False) is None


def test_s5_content_goes_to_no_provider_that_speaks_another_protocol() -> None:
    claude = entry(model="anthropic/claude-sonnet-4-5", api_key="sk-own")
    assert internal(router(claude), "gpt-4o-mini", chosen=True) is None


def test_s5_an_internal_model_without_a_key_for_this_caller_is_none() -> None:
    keyless = entry("cheap", model="anthropic/claude-haiku-4-5")
    found = router(entry(api_base="http://own/v1", api_key="sk-own"), keyless)
    assert found.internal("cheap", True, found.deployment("m", NOBODY), NOBODY) is None


def test_s5_what_an_internal_model_reads_stays_in_the_clients_project() -> None:
    """With the key of the primary model; to nobody else, and what the operator set for a model stands."""
    account = {"openai-organization": "org-1", "openai-project": "proj-1"}
    client = RequestCaller("tenant", "sk-client", {**account, "openai-beta": "x", "x-title": "app"})
    found = router()
    served = found.internal("gpt-4o-mini", False, found.deployment("gpt-4o", client), client)
    assert served is not None
    assert served.headers == account
    own = entry(api_base="http://own/v1", api_key="sk-own")
    same = entry("same", api_base="http://own/v1", api_key="sk-own", organization="org-2")
    other = entry("other", api_base="http://other/v1", api_key="sk-other")
    listed = router(own, same, other)
    primary = listed.deployment("m", client)
    kept = {name: listed.internal(name, True, primary, client) for name in ("same", "other")}
    assert {name: found.headers if found else None for name, found in kept.items()} == {
        "same": {"openai-project": "proj-1", "OpenAI-Organization": "org-2"},
        "other": {},
    }


def test_a_key_of_anthropics_goes_to_anthropic_alone() -> None:
    """§10.7: for its models that no entry serves, and for entries of its own that name no key."""
    routes = router()
    caller = RequestCaller("t", None, anthropic_key="sk-ant-own")
    found = routes.deployment("claude-sonnet-4-5", caller)
    assert (found.provider, found.api_base, found.api_key) == ("anthropic", "https://api.anthropic.com", "sk-ant-own")
    assert routes.deployment("gpt-4o", caller).api_key is None
    assert routes.deployment("claude-sonnet-4-5", RequestCaller("t", "sk-own")).api_base == "https://api.openai.com/v1"
    spoken, _ = KnownProtocols(SystemClock()).of(found, NativeRequest("anthropic"))
    assert (spoken.protocol, spoken.url("messages")) == ("anthropic", "https://api.anthropic.com/v1/messages")
    assert spoken.authorization == {"x-api-key": "sk-ant-own"}
    subscribed = KnownProtocols(SystemClock()).of(replace(found, api_key="sk-ant-oat01-x"), NativeRequest("anthropic"))[
        0
    ]
    assert subscribed.authorization == {"authorization": "Bearer sk-ant-oat01-x"}
    kept = router(upstream={"api_key": "sk-operator"})
    assert kept.deployment("claude-sonnet-4-5", caller).api_key == "sk-ant-own"
    unsure = RequestCaller("t", None, anthropic_key="sk-any")
    assert kept.deployment("claude-sonnet-4-5", unsure).api_key == "sk-operator"
    listed = router(entry("c", "anthropic/claude-sonnet-4-5"), entry("g", "groq/x"))
    assert listed.deployment("c", caller).api_key == "sk-ant-own"
    assert listed.deployment("g", caller).api_key is None


def test_anthropics_own_endpoint_for_chats_gets_its_key() -> None:
    """§10.16: as the default upstream, or as an entry's address."""
    caller = RequestCaller("t", None, anthropic_key="sk-ant-own")
    compatible = router(upstream={"api_base": "https://api.anthropic.com/v1"})
    assert compatible.default("x", caller).api_key == "sk-ant-own"
    listed = router(entry("c", "openai/claude-x", api_base="https://api.anthropic.com/v1"))
    assert listed.deployment("c", caller).api_key == "sk-ant-own"
    assert router(upstream={"api_base": "https://api.anthropic.com.evil/v1"}).default("x", caller).api_key is None
