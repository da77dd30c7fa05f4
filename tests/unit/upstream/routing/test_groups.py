"""Entries of one name are one group of deployments (guarantee §12.5)."""

from collections import Counter
from typing import Any

import pytest

from gateway.core.config.model_list import ModelEntry
from gateway.core.config.settings import Settings
from gateway.core.errors import ModelNotFound, Unauthorized, UpstreamUnreachable
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.deployments import ModelGroups
from gateway.upstream.routing.router import ConfiguredRouter, RouteHint, RoutingCandidates
from tests.support.hand_clock import HandClock

ANYBODY = RequestCaller("a")
CLIENT = RequestCaller("a", "sk-client")
DOWN = UpstreamUnreachable("down")


def entry(name: str, host: str, info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    params = {"model": "openai/m", "api_base": f"http://{host}/v1", "api_key": "sk-own", **params}
    return {"model_name": name, "litellm_params": params, "model_info": info or {}}


def router(*entries: dict[str, Any], **routing: Any) -> ConfiguredRouter:
    settings = Settings.model_validate({"model_list": entries, "routing": routing})
    return ConfiguredRouter(settings, ModelCatalogue(), clock=HandClock())


def said(text: str) -> RouteHint:
    return RouteHint("t", messages=[{"role": "user", "content": text}])


def all_asked(found: RoutingCandidates) -> list[str]:
    asked = [found.first]
    while (another := found.next(asked[-1], DOWN)) is not None:
        asked.append(another)
    return [each.id for each in asked]


def ids(*entries: dict[str, Any]) -> list[str]:
    groups = ModelGroups([ModelEntry.model_validate(each) for each in entries])
    return [member.id for name in groups.names for member in groups.find(name)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry("m", "one"), entry("m", "two")], ["openai/m@one", "openai/m@two"]),
        ([entry("m", "one"), entry("n", "one")], ["openai/m@one", "openai/m@one"]),
        ([entry("m", "one"), entry("m", "one", api_key="sk-b")], ["openai/m@one", "openai/m@one#2"]),
        ([entry("m", "one"), entry("m", "one")], ["openai/m@one", "openai/m@one/2"]),
        ([entry("m", "one", weight=1), entry("n", "one", weight=2, rpm=5)], ["openai/m@one", "openai/m@one"]),
        ([entry("m", "one", {"id": "eu"})], ["eu"]),
        ([entry("m", "user:pass@one")], ["openai/m@one"]),
        ([entry("m", "one", api_base=None)], ["openai/m"]),
    ],
)
def test_s12_5_a_deployment_has_one_name_wherever_it_stands(entries: list[Any], expected: list[str]) -> None:
    assert ids(*entries) == expected


def id_after(found: RoutingCandidates, text: str) -> str:
    """The id of the conversation that a request begins."""
    numbers = iter(range(1_000))
    return found.named(lambda: f"conv_{text}_{next(numbers)}")


def test_s12_5_a_conversations_or_completions_id_leads_to_its_first_deployment_on_every_replica() -> None:
    """Among the deployments of its order; nothing is stored."""
    entries = entry("m", "one", order=1), entry("m", "two", order=1), entry("m", "three", order=2, weight=5)
    served, other = router(*entries), router(*entries)
    for number in range(50):
        found = served.candidates("m", ANYBODY, said(f"question {number}"))
        for hint in (RouteHint("t", id_after(found, str(number))), RouteHint("t", behind=id_after(found, str(number)))):
            assert other.candidates("m", ANYBODY, hint).first.id == found.first.id


def test_s12_5_a_new_id_keeps_the_weights() -> None:
    served = router(entry("m", "one", weight=9), entry("m", "two", weight=1))
    asked: Counter[str] = Counter()
    for number in range(400):
        found = served.candidates("m", ANYBODY, said(f"question {number}"))
        named = served.candidates("m", ANYBODY, RouteHint("t", id_after(found, str(number))))
        assert named.first.id == found.first.id
        asked[named.first.id] += 1
    assert 15 <= asked["openai/m@two"] <= 75


@pytest.mark.parametrize("strategy", ["latency", "least_busy"])
def test_s12_5_where_the_moment_decides_a_process_remembers_the_new_id(strategy: str) -> None:
    served = router(entry("m", "one"), entry("m", "two"), strategy=strategy)
    for number in range(20):
        found = served.candidates("m", ANYBODY, said(f"question {number}"))
        found.began(found.first)
        hint = RouteHint("t", id_after(found, str(number)))
        assert served.candidates("m", ANYBODY, hint).first.id == found.first.id


def test_s12_5_a_new_id_is_any_where_conversations_do_not_stay() -> None:
    served = router(entry("m", "one"), entry("m", "two"), sticky="never")
    assert id_after(served.candidates("m", ANYBODY, said("hello")), "x") == "conv_x_0"
    assert id_after(router(entry("m", "one")).candidates("m", ANYBODY, said("hello")), "x") == "conv_x_0"


def test_s12_5_each_deployment_of_a_group_is_asked_once() -> None:
    served = router(entry("m", "one"), entry("m", "two"), entry("m", "three"))
    found = served.candidates("m", ANYBODY)
    assert found.several
    assert not found.exhausted
    assert sorted(all_asked(found)) == ["openai/m@one", "openai/m@three", "openai/m@two"]


def test_s12_5_one_deployment_is_asked_alone_and_its_candidates_are_shared() -> None:
    served = router(entry("m", "one"))
    found = served.candidates("m", ANYBODY)
    assert not found.several
    assert all_asked(found) == ["openai/m@one"]
    assert served.candidates("m", CLIENT, said("x")) is found, "nothing is made anew for each request"


def test_s12_5_a_conversation_is_asked_where_it_was_on_every_replica() -> None:
    entries = [entry("m", host) for host in ("one", "two", "three")]
    one, other = router(*entries), router(*reversed(entries))
    places: Counter[str] = Counter()
    for number in range(60):
        hint = said(f"question {number}")
        place = one.candidates("m", ANYBODY, hint).first.id
        assert {other.candidates("m", ANYBODY, hint).first.id for _ in range(3)} == {place}
        places[place] += 1
    assert len(places) == 3


def test_s12_5_without_stickiness_requests_are_spread() -> None:
    served = router(entry("m", "one"), entry("m", "two"), sticky="never")
    assert len({served.candidates("m", ANYBODY, said("x")).first.id for _ in range(40)}) == 2


def test_s12_5_what_depends_on_the_moment_is_remembered_for_a_conversation() -> None:
    served = router(entry("m", "one"), entry("m", "two"), strategy="least_busy")
    found = served.candidates("m", ANYBODY, said("x"))
    for _ in range(3):
        found.began(found.first)
    assert served.candidates("m", ANYBODY, said("x")).first.id == found.first.id
    assert served.candidates("m", ANYBODY, said("other")).first.id != found.first.id


def test_s12_5_what_goes_on_behind_a_completion_is_asked_where_that_was_made() -> None:
    served = router(entry("m", "one"), entry("m", "two"))
    for number in range(10):
        found = served.candidates("m", ANYBODY, said(str(number)))
        found.remember(f"chatcmpl-{number}", found.first)
        behind = RouteHint("t", behind=f"chatcmpl-{number}")
        assert served.candidates("m", ANYBODY, behind).first.id == found.first.id


def test_s12_5_a_deployment_that_rests_is_asked_last_and_comes_back() -> None:
    served = router(entry("m", "one"), entry("m", "two"))
    hint = said("x")
    home = served.candidates("m", ANYBODY, hint).first
    for _ in range(3):
        served.health.began(home).ended(DOWN)
    found = served.candidates("m", ANYBODY, hint)
    assert found.first.id != home.id
    assert not found.exhausted
    assert found.rests(home)
    assert not found.rests(found.first)
    assert all_asked(found)[-1] == home.id
    served.health.began(home).ended()
    assert served.candidates("m", ANYBODY, hint).first.id == home.id


def test_s12_5_where_all_rest_the_one_that_wakes_first_is_asked() -> None:
    served = router(entry("m", "one"), entry("m", "two"))
    first = served.candidates("m", ANYBODY, said("x")).first
    for each in served.all_of("m", ANYBODY):
        for _ in range(3):
            served.health.began(each).ended(DOWN)
    served.health.probed(first.id, reached=False, wait=30)
    found = served.candidates("m", ANYBODY, said("x"))
    assert found.exhausted
    assert found.first.id != first.id


def test_s12_5_limits_of_an_entry_send_requests_to_the_next() -> None:
    limited = entry("m", "one", order=1, max_parallel_requests=1)
    served = router(limited, entry("m", "two", order=2))
    found = served.candidates("m", ANYBODY)
    assert found.first.id == "openai/m@one"
    running = found.began(found.first)
    assert served.candidates("m", ANYBODY).first.id == "openai/m@two"
    running.ended()
    assert served.candidates("m", ANYBODY).first.id == "openai/m@one"


def test_s12_5_facts_are_those_of_the_deployment() -> None:
    served = router(
        entry("m", "one", {"max_input_tokens": 8000, "input_cost_per_token": 1}),
        entry("m", "two", {"max_input_tokens": 32000, "input_cost_per_token": 2}),
    )
    small, large = served.all_of("m", ANYBODY)
    assert served.facts("m", small).max_input_tokens == 8000
    assert served.facts("m", large).max_input_tokens == 32000
    assert served.facts("m", large).prices["input_cost_per_token"] == 2
    assert served.facts("m").max_input_tokens == 8000


def test_s12_5_entries_of_one_pattern_are_a_group() -> None:
    served = router(
        entry("team/*", "one", model="openai/*"), entry("team/*", "two", model="openai/*"), entry("*", "three")
    )
    found = served.all_of("team/small", ANYBODY)
    assert [(each.provider_model, each.api_base) for each in found] == [
        ("small", "http://one/v1"),
        ("small", "http://two/v1"),
    ]
    assert [each.id for each in found] == ["openai/*@one", "openai/*@two"], "one health for all models of an entry"
    assert served.candidates("team/small", ANYBODY).several


def test_s12_5_entries_that_are_not_for_this_caller_are_none_of_the_group() -> None:
    anthropics = {"model_name": "m", "litellm_params": {"model": "anthropic/claude-x"}}
    served = router(anthropics, entry("m", "two"))
    assert all_asked(served.candidates("m", RequestCaller("a"))) == ["openai/m@two"]
    assert len(all_asked(served.candidates("m", CLIENT))) == 2
    with pytest.raises(Unauthorized):
        router(anthropics, {**anthropics, "model_info": {"id": "b"}}).candidates("m", RequestCaller("a"))


def test_s12_5_a_clients_own_key_is_no_other_clients() -> None:
    served = router(entry("m", "one", api_key=None), entry("m", "two", api_key=None))

    def keys(caller: RequestCaller) -> set[str | None]:
        return {each.api_key for each in served.all_of("m", caller)}

    assert keys(CLIENT) == {"sk-client"}
    assert keys(RequestCaller("b", "sk-other")) == {"sk-other"}


def test_s12_5_models_that_are_not_listed_are_watched_by_nobody() -> None:
    served = ConfiguredRouter(Settings(), ModelCatalogue(), clock=HandClock())
    found = served.candidates("gpt-4o", CLIENT, said("x"))
    found.began(found.first).ended(DOWN)
    assert not found.several
    assert not found.exhausted
    assert not list(served.health.watched())
    with pytest.raises(ModelNotFound):
        router(entry("m", "one")).candidates("other", ANYBODY)


def test_s12_5_a_fall_back_on_another_api_keeps_its_deployment() -> None:
    """What `Natives` makes of a deployment is still the deployment of its entry."""
    found: ModelDeployment = router(entry("m", "one", {"mode": "responses"})).deployment("m", ANYBODY)
    assert (found.protocol, found.id) == ("responses", "openai/m@one")
