"""The table of LiteLLM's settings has every one of the proxy's (guarantee §12.14)."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from gateway.core.config.litellm_table import (
    LITELLM_SECTIONS,
    ROUTER_PARAMETERS,
    SETTING_RULES,
    UNKNOWN_SETTING,
    rule_of,
)
from gateway.core.config.settings import Settings
from gateway.core.types.chat import RequestCaller
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.deployments import REQUEST_FIELDS
from gateway.upstream.routing.router import ConfiguredRouter

MODEL = {
    "model": "openai/x", "custom_llm_provider": "openai", "api_base": "http://x/v1", "api_key": "k",
    "organization": "o", "api_version": "v1", "extra_headers": {}, "extra_body": {},
}  # fmt: skip

NO_SETTING = re.compile(
    r"_(?:models|llms|list_set|by_provider)$|^(?:initialized_|_)|client_session$|^(?:model_list|adapters|"
    r"argilla_transformation_object|self)$"
)
"""Variables of the library that are its own: lists of models, clients, what it is doing."""


@cache
def package() -> Path:
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((package() / path).read_text())


def fields(path: str, *names: str) -> set[str]:
    """The fields of classes of LiteLLM's, without importing it."""
    classes = [each for each in parsed(path).body if isinstance(each, ast.ClassDef) and each.name in names]
    assert len(classes) == len(names), f"{path} has no {names}"
    return {
        each.target.id
        for found in classes
        for each in found.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id != "model_config"
    }


def read_by_the_proxy() -> set[str]:
    """What the proxy's code asks of its general settings."""
    asked = re.compile(r"general_settings(?:\.get\(|\[)\s*[\"'](\w+)[\"']")
    return {name for path in (package() / "proxy").rglob("*.py") for name in asked.findall(path.read_text("utf-8"))}


def arguments(path: str, name: str) -> set[str]:
    """The arguments that a class is made with."""
    (found,) = [each for each in parsed(path).body if isinstance(each, ast.ClassDef) and each.name == name]
    (made,) = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return {each.arg for each in (*made.args.args, *made.args.kwonlyargs)}


def variables(path: str) -> set[str]:
    """What `litellm_settings` may set: variables of the library."""
    found: set[str] = set()
    for each in parsed(path).body:
        targets = (
            [each.target] if isinstance(each, ast.AnnAssign) else each.targets if isinstance(each, ast.Assign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if re.fullmatch("[a-z][a-z0-9_]*", name)}


def theirs() -> dict[str, set[str]]:
    """The settings that the installed LiteLLM knows, by where they stand."""
    named = {
        "general_settings": fields("proxy/_types.py", "ConfigGeneralSettings") | read_by_the_proxy(),
        "router_settings": arguments("router.py", "Router") | fields("types/router.py", "UpdateRouterConfig"),
        "litellm_settings": variables("__init__.py"),
        "litellm_params": fields("types/router.py", "GenericLiteLLMParams", "CredentialLiteLLMParams")
        | fields("types/utils.py", "CustomPricingLiteLLMParams"),
    }
    return {part: {name for name in names if not NO_SETTING.search(name)} for part, names in named.items()}


MAPPINGS = ("general_settings", "router_settings", "litellm_settings")


def paths(part: str) -> set[str]:
    """Where the settings of a part stand in a file."""
    return {f"model_list[].{part}.{name}" if part == "litellm_params" else f"{part}.{name}" for name in theirs()[part]}


@pytest.mark.parametrize("part", [*MAPPINGS, "litellm_params"])
def test_s12_14_every_setting_of_litellm_is_in_the_table(part: str) -> None:
    assert len(paths(part)) > 50
    assert not sorted(path for path in paths(part) if rule_of(path) is UNKNOWN_SETTING)


def test_s12_14_every_section_and_every_parameter_that_is_not_sent_is_in_the_table() -> None:
    assert not sorted(name for name in LITELLM_SECTIONS - {*MAPPINGS} if rule_of(name) is UNKNOWN_SETTING)
    parameters = (f"model_list[].litellm_params.{name}" for name in ROUTER_PARAMETERS)
    assert not sorted(path for path in parameters if rule_of(path) is UNKNOWN_SETTING)


def test_s1_no_setting_of_litellm_is_sent_with_requests() -> None:
    entry = {"model_name": "m", "litellm_params": dict.fromkeys(theirs()["litellm_params"], 1) | MODEL}
    settings = Settings.model_validate({"model_list": [entry]})
    deployment = ConfiguredRouter(settings, ModelCatalogue()).deployment("m", RequestCaller("t"))
    assert not deployment.parameters.keys() - REQUEST_FIELDS


def test_what_is_read_is_not_told_as_not_supported() -> None:
    assert not [rule.names for rule in SETTING_RULES if rule.read and rule.group == "not supported"]


def test_s12_14_a_name_has_the_row_that_names_it_as_a_whole() -> None:
    """As docs/litellm.md says: a pattern of an earlier row does not hide it."""
    for rule in SETTING_RULES:
        for name in rule.names.split():
            path = name if "." in name else f"router_settings.{name}"
            assert "*" in name or rule_of(path) == rule, name
