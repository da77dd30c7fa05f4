"""What is known of providers (`core/types/upstreams.py`)."""

from typing import get_args, get_type_hints

import pytest

from gateway.core.types import upstreams
from gateway.core.types.chat import ModelDeployment


def test_every_protocol_of_a_deployment_has_its_facts() -> None:
    assert set(get_args(get_type_hints(ModelDeployment)["protocol"])) == set(upstreams.PROTOCOLS)


@pytest.mark.parametrize(
    ("model", "pictures", "page"),
    [
        ("anthropic/claude-sonnet-4-5", upstreams.CLAUDE.pictures, None),
        ("bedrock/us.anthropic.Claude-3-7-v1:0", upstreams.CLAUDE.pictures, None),
        ("gemini/gemini-2.5-pro", upstreams.OPENAIS_PICTURES, 258),
        ("gemini-1.5-flash", upstreams.OPENAIS_PICTURES, 258),
        ("gemini-3-pro", upstreams.OPENAIS_PICTURES, 560),
        ("gemini-10", upstreams.OPENAIS_PICTURES, 560),
        ("gemini-flash-latest", upstreams.OPENAIS_PICTURES, 560),
        ("openai/gpt-5-mini", upstreams.PatchedPictures(1.62), None),
        ("gpt-4.1-nano", upstreams.PatchedPictures(2.46), None),
        ("o4-mini", upstreams.PatchedPictures(1.72), None),
        ("gpt-5.1", upstreams.TiledPictures(70, 140), None),
        ("o3-pro", upstreams.TiledPictures(75, 150), None),
        ("gpt-4o", upstreams.OPENAIS_PICTURES, None),
        ("", upstreams.OPENAIS_PICTURES, None),
    ],
)
def test_a_model_costs_what_its_maker_publishes(model: str, pictures: object, page: int | None) -> None:
    found = upstreams.family_of(model)
    assert (found.pictures, found.page) == (pictures, page)


@pytest.mark.parametrize("route", ["vertex_ai/Claude-3", "openrouter/anthropic/claude-x:beta", "claude-3/deployed"])
def test_a_route_may_name_a_maker_anywhere(route: str) -> None:
    assert upstreams.family_in(route) is upstreams.CLAUDE
    assert not upstreams.family_in(route.lower().replace("claude", "other")).signs_thoughts
