"""Dockerfile and compose.yaml as far as they can be read; `make compat` runs their commands (guarantee §8)."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from gateway.core.config.exposure import refusal
from gateway.core.config.loading import load_settings
from tests.support.container import DEPLOY, Dockerfile, interpolated

KEYS = "[{key: a-long-secret, tenant: team-a}]"
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_compose_passes_the_names_that_its_comments_tell_to_set() -> None:
    comments = "\n".join(re.findall("^#.*", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE))
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", comments))
    assert {"OPENAI_API_KEY", "GATEWAY_AUTH_KEYS"} <= named
    passed = COMPOSE["services"]["gateway"]["environment"]
    for name in named:
        assert interpolated(passed, {name: "x"})[name] == "x"


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, True),
        ({"OPENAI_API_KEY": "sk-own"}, False),
        ({"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_KEYS": KEYS}, True),
        ({"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_MODE": "open"}, True),
        ({"GATEWAY_AUTH_KEYS": KEYS}, True),
    ],
)
@pytest.mark.parametrize("how", ["docker run -e", "compose"])
def test_s8_a_container_with_an_operators_key_needs_keys_of_its_own(
    how: str, given: dict[str, str], starts: bool
) -> None:
    """It listens on all addresses, so with `OPENAI_API_KEY` alone it must not start."""
    environment, file = Dockerfile.read().environment, None
    if how == "compose":
        file = str(DEPLOY / "gateway.yaml")
        environment |= interpolated(COMPOSE["services"]["gateway"]["environment"], given)
    else:
        environment |= given
    settings = load_settings(file, environment)
    assert settings.server.host == "0.0.0.0"
    assert (refusal(settings) is None) is starts
    assert [entry.tenant for entry in settings.auth.keys] == (["team-a"] if "GATEWAY_AUTH_KEYS" in given else [])


def test_the_image_is_built_with_all_that_the_wheel_holds() -> None:
    """What is not copied, or not sent to the builder, ends its build."""
    project: Any = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], "pyproject.toml"}
    needed |= {project["project"]["readme"], *project["project"]["license-files"]}
    assert needed <= set(Dockerfile.read().copied)
    sent = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in needed} <= set(sent)


def test_the_image_runs_as_an_unprivileged_user() -> None:
    image = Dockerfile.read()
    assert image.user
    assert image.user not in ("root", "0")
    assert image.command == ["gateway", "serve"]
