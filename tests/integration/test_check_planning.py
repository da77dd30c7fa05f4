"""`gateway check` says whether planner and summarizer can be asked, and at what price (guarantee §5, §9)."""

from pathlib import Path
from typing import Any

import pytest

from gateway.core.config.settings import Settings
from gateway.operations.check import check, migrate_now
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.schemas import sqlite_url

PRICED = {"input_cost_per_token": 1e-7, "output_cost_per_token": 4e-7}
BOTH = "planner and summarizer"


def entry(upstream: MockUpstream, name: str = "small", *, info: dict[str, Any] | None = None, **params: Any) -> Any:
    given = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-upstream", **params}
    return {"model_name": name, "litellm_params": given, "model_info": info or {}}


def said(
    directory: Path, *entries: Any, upstream: str | None = None, **context: Any
) -> dict[str, list[tuple[str, str]]]:
    """Marks and texts of what is said of internal models, by their title; of no other model anything is said."""
    config = {"model_list": list(entries), "storage": {"url": sqlite_url(directory)}, "context": context}
    if upstream:
        config["upstream"] = {"api_base": upstream}
    found: dict[str, list[tuple[str, str]]] = {}
    for result in check(Settings.model_validate(config)):
        mark = "ok" if result.ok else "warn" if result.optional else "fail"
        if result.name.startswith(("planner", "summarizer")):
            found.setdefault(result.name, []).append((mark, result.text))
    return found


def test_s5_a_default_in_model_list_is_found(upstream: MockUpstream, tmp_path: Path) -> None:
    known = {**PRICED, "max_input_tokens": 1000}
    found = said(tmp_path, entry(upstream, info=known), entry(upstream, "gpt-4o-mini"))
    assert found == {f"{BOTH} gpt-4o-mini": [("ok", "in model_list")]}
    assert [record.path for record in upstream.requests] == ["/v1/models"], "an address is asked once"


def test_s5_a_default_counts_beside_a_model_at_the_default_upstream_alone(
    upstream: MockUpstream, tmp_path: Path
) -> None:
    """Content goes to no provider that nobody chose; that is no fault of the configuration, but it should be known."""
    found = said(tmp_path, entry(upstream), upstream=upstream.base_url)
    assert found == {f"{BOTH} gpt-4o-mini": [("ok", "at the upstream of small")]}
    ((mark, text),) = said(tmp_path, entry(upstream))[f"{BOTH} gpt-4o-mini"]
    assert mark == "warn"
    assert all(part in text for part in ("not in model_list", "no_planner", "no_summarizer"))


def test_s9_where_no_listed_model_can_be_served_the_default_upstream_is_not_asked(
    upstream: MockUpstream, tmp_path: Path
) -> None:
    unserved = {**entry(upstream), "unset": ("the environment has no KEY",)}
    ((mark, text),) = said(tmp_path, unserved, upstream=upstream.base_url)[f"{BOTH} gpt-4o-mini"]
    assert (mark, "not in model_list" in text) == ("warn", True)
    assert not upstream.requests


def test_s5_without_any_configuration_the_default_upstream_is_asked(upstream: MockUpstream, tmp_path: Path) -> None:
    assert said(tmp_path, upstream=upstream.base_url) == {
        f"{BOTH} gpt-4o-mini": [("ok", "at the default upstream; the client's own key will be used")]
    }


def test_s5_two_that_are_named(upstream: MockUpstream, tmp_path: Path) -> None:
    """Named ones may be asked at any primary's upstream; a price that nobody knows is told for each."""
    entries = entry(upstream), entry(upstream, "own-summarizer", info=PRICED)
    upstream.models = [*upstream.models, "own-planner", "own-summarizer"]
    named = {"planner_model": "own-planner", "summarizer_model": "own-summarizer"}
    found = said(tmp_path, *entries, **named)
    assert found["summarizer own-summarizer"] == [("ok", "in model_list")]
    served, price = found["planner own-planner"]
    assert served == ("ok", "at the upstream of small, own-summarizer")
    assert (price[0], "`total_cost` is null" in price[1]) == ("warn", True)
    _, price = said(tmp_path, *entries, **named, planning_max_cost="0.01")["planner own-planner"]
    assert (price[0], price[1].startswith("never called")) == ("warn", True)


NO_ADDRESSES = [
    "",
    "nothing",
    "127.0.0.1:9/v1",
    "ftp://127.0.0.1/v1",
    "http:///v1",
    "http://127.0.0.1:99999",
    "http://[::1",
]


@pytest.mark.parametrize("base", NO_ADDRESSES)
def test_s9_an_upstream_without_an_address_fails(tmp_path: Path, base: str) -> None:
    """One that does not answer may be started later; without any address the setting is named."""
    for address, failing in (
        (base, [f"upstream {base}" if base else "upstream.api_base"]),
        ("http://127.0.0.1:9/v1", []),
    ):
        config = {"storage": {"url": sqlite_url(tmp_path)}, "upstream": {"api_base": address}}
        results = check(Settings.model_validate(config))
        assert [each.name for each in results if not (each.ok or each.optional)] == failing, address


@pytest.mark.parametrize(("scheme", "read"), [("valkey", "redis"), ("valkeys", "rediss"), ("redis", "redis")])
def test_s9_valkeys_own_schemes_name_a_cache_as_well(scheme: str, read: str) -> None:
    settings = Settings.model_validate({"cache": {"url": f"{scheme}://:secret@h:6379/0"}})
    assert settings.cache.url == f"{read}://:secret@h:6379/0"


@pytest.mark.parametrize("url", ["nothing", "redis://[::1", "redis://h:99999", "redis://user:hush/word@h:6379"])
def test_s9_a_cache_without_an_address_fails_and_the_rest_is_checked(tmp_path: Path, url: str) -> None:
    config = {"storage": {"url": sqlite_url(tmp_path)}, "cache": {"url": url}}
    results = check(Settings.model_validate(config))
    (failure,) = [each for each in results if not (each.ok or each.optional)]
    assert (failure.name, failure.text) == ("cache", "cache.url is no address such as redis://HOST:PORT")
    assert results[-1].name.startswith(BOTH)


def test_s5_one_that_is_named_has_to_be_there(upstream: MockUpstream, tmp_path: Path) -> None:
    """Without its upstream, without a provider, or where it cannot be asked: the check fails, and says what follows."""
    lost = {"model_list": [entry(upstream, "gone", info=PRICED, api_base="http://127.0.0.1:9/v1")],
            "storage": {"url": sqlite_url(tmp_path)}, "context": {"planner_model": "gone"}}  # fmt: skip
    failures = [each for each in check(Settings.model_validate(lost)) if not (each.ok or each.optional)]
    assert [each.name for each in failures] == ["upstream http://127.0.0.1:9/v1"]
    assert not any(".:" in each.text for each in check(Settings.model_validate(lost)))
    gone = entry(upstream, "gone", info=PRICED, api_base="http://127.0.0.1:9/v1")
    unknown = entry(upstream, "unknown", info=PRICED, model="antropic/claude", api_base=None)
    claude = {
        "model_name": "claude",
        "litellm_params": {"model": "anthropic/claude-sonnet-4-5", "api_base": upstream.url},
    }
    for entries, name in (([gone], "gone"), ([unknown], "unknown"), ([claude], "nobodys")):
        ((mark, text),) = said(tmp_path, *entries, planner_model=name, summarizer_model=name)[f"{BOTH} {name}"]
        # An upstream that is not reached fails the check by its own line: one cause, one failure.
        assert mark == ("warn" if name == "gone" else "fail"), text
        assert "no_planner" in text


def test_s5_a_model_that_its_upstream_does_not_list_is_a_warning(upstream: MockUpstream, tmp_path: Path) -> None:
    """As where a local server is the upstream, and nobody named a planner that it has."""
    upstream.models = ["small", "qwen:latest"]
    ((mark, text),) = said(tmp_path, upstream=upstream.base_url)[f"{BOTH} gpt-4o-mini"]
    assert (mark, "does not have gpt-4o-mini" in text) == ("warn", True)
    found = said(tmp_path, upstream=upstream.base_url, planner_model="qwen", summarizer_model="qwen")
    assert found[f"{BOTH} qwen"][0] == ("ok", "at the default upstream; the client's own key will be used")


@pytest.mark.parametrize("context", [{"planning": "never"}, {"mode": "simple"}, {"mode": "off"}])
def test_s5_nothing_is_said_of_defaults_where_nothing_is_planned(
    upstream: MockUpstream, tmp_path: Path, context: dict[str, Any]
) -> None:
    assert said(tmp_path, entry(upstream), **context) == {}
    assert said(tmp_path, entry(upstream, "gpt-4o-mini"), planner_model="gpt-4o-mini", **context)


def test_s11_13_the_summarizer_of_old_turns_is_checked_without_plans(upstream: MockUpstream, tmp_path: Path) -> None:
    found = said(tmp_path, entry(upstream), planning="never", memory="summary")
    assert found.keys() == {f"{BOTH} gpt-4o-mini"}
    assert said(tmp_path, entry(upstream), planning="never", memory="summary", mode="simple") == {}


@pytest.mark.parametrize(
    ("model", "info", "way"),
    [
        ("openai/own", {"mode": "responses"}, "called by Responses"),
        ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", {}, "called through litellm"),
    ],
    ids=["responses", "litellm"],
)
def test_s9_what_is_not_asked_is_told_by_how_it_is_called(
    upstream: MockUpstream, tmp_path: Path, model: str, info: dict[str, Any], way: str
) -> None:
    config = {"model_list": [entry(upstream, model=model, info=info)], "storage": {"url": sqlite_url(tmp_path)}}
    told = {result.name: result.text for result in check(Settings.model_validate(config))}
    assert told["model small"].startswith("not asked: ")
    assert told["model small"].endswith(way)


def test_s12_5_each_deployment_of_a_model_is_reached(upstream: MockUpstream, tmp_path: Path) -> None:
    """One that is not there is a failure, although requests are answered by the other."""
    config = {
        "model_list": [entry(upstream), entry(upstream, api_base="http://127.0.0.1:9/v1")],
        "storage": {"url": sqlite_url(tmp_path)},
        "context": {"planning": "never"},
    }
    results = check(Settings.model_validate(config))
    found = {result.name: result.ok for result in results if result.name.startswith("upstream")}
    assert found == {f"upstream {upstream.base_url}": True, "upstream http://127.0.0.1:9/v1": False}
    facts = [result.name for result in results if result.name.startswith("model small")]
    assert facts == [f"model small at {upstream.base_url}"], "of one that is there"


def warned(settings: dict[str, Any], directory: Path) -> dict[str, str]:
    """Texts of the warnings of `gateway check`, by their title; nothing else is wrong."""
    config = {"storage": {"url": sqlite_url(directory)}, "context": {"planning": "never"}, **settings}
    results = [each for each in check(Settings.model_validate(config)) if not each.ok]
    assert all(each.optional for each in results), results
    return {each.name: each.text for each in results}


def test_s9_fallbacks_to_models_that_nobody_serves_are_told(upstream: MockUpstream, tmp_path: Path) -> None:
    routing = {
        "fallbacks": {"small": ["big"], "smal": ["small"]},
        "context_window_fallbacks": {"small": "small"},
        "default_fallbacks": ["other"],
    }
    models = {"model_list": [entry(upstream, info={**PRICED, "max_input_tokens": 1000})]}
    assert warned({**models, "routing": routing}, tmp_path) == {
        "routing.fallbacks": "model_list does not have smal, big",
        "routing.default_fallbacks": "model_list does not have other",
    }
    relayed = {"api_base": upstream.base_url, "unlisted": "relay"}
    assert warned({**models, "routing": routing, "upstream": relayed}, tmp_path) == {}


def test_s9_a_model_that_its_upstream_does_not_list_is_told(upstream: MockUpstream, tmp_path: Path) -> None:
    known = {**PRICED, "max_input_tokens": 1000}
    upstream.models = ["small", "models/gemini"]
    listed = [entry(upstream, name, info=known) for name in ("small", "gemini", "smal")]
    assert warned({"model_list": listed}, tmp_path) == {
        "model smal": f"the list of models of {upstream.base_url} does not have smal"
    }


def test_s9_an_address_beside_the_api_is_told(upstream: MockUpstream, tmp_path: Path) -> None:
    models = [entry(upstream, info={**PRICED, "max_input_tokens": 1000}, api_base=upstream.url)]
    upstream.routes["GET /models"] = Reply(status=404, json={"detail": "Not Found"})
    title = f"upstream {upstream.url}"
    assert "below /v1" in warned({"model_list": models}, tmp_path)[title]
    upstream.routes["GET /models"] = Reply(body=b"<!doctype html>", content_type="text/html; charset=utf-8")
    assert "web page" in warned({"model_list": models}, tmp_path)[title]
    upstream.routes["GET /models"] = Reply(status=301, headers={"location": "https://example.org/v1/models"}, body=b"")
    assert "redirects (status 301)" in warned({"model_list": models}, tmp_path)[title]


def test_s9_keys_that_all_expired_are_told(upstream: MockUpstream, tmp_path: Path) -> None:
    migrate_now(Settings.model_validate({"storage": {"url": sqlite_url(tmp_path)}}))
    models = {"model_list": [entry(upstream, info={**PRICED, "max_input_tokens": 1000})]}
    old = {"key": "gw-long-enough", "tenant": "acme", "expires_at": "2020-01-01T00:00:00Z"}
    assert "nobody is served" in warned({**models, "auth": {"keys": [old]}}, tmp_path)["keys"]
    assert warned({**models, "auth": {"keys": [old, {"key": "gw-in-force", "tenant": "acme"}]}}, tmp_path) == {}


def test_s9_workers_on_sqlite_fail_as_at_the_start(tmp_path: Path) -> None:
    config = {"storage": {"url": sqlite_url(tmp_path)}, "server": {"workers": 4}}
    failures = [each for each in check(Settings.model_validate(config)) if not (each.ok or each.optional)]
    assert [each.name for each in failures] == ["server"]
    assert "server.workers: 4" in failures[0].text
