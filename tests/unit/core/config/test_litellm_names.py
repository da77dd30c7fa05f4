"""docs/litellm.md has every setting of the LiteLLM proxy, with what the code says of it (guarantee §12.14)."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.core.config.litellm_advice import ADVICE, ROUTER_PARAMETERS, SECTIONS, fate_of
from gateway.core.config.litellm_limits import READERS as LIMITS
from gateway.core.config.litellm_routing import READERS as ROUTING

PAGE = (Path(__file__).parents[4] / "docs/litellm.md").read_text()
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


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Section, name, group and text of each setting in the table."""
    for heading, body in re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE):
        for names, group, text in re.findall(r"^\| (`.+?) \| ([a-z ]+) \| (.+) \|$", body, re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", names):
                yield heading, name, group, text


TABLE = {(section, name): (group, text) for section, name, group, text in rows()}


def path_of(section: str, name: str) -> str:
    if section == "litellm_params":
        return f"model_list[].litellm_params.{name}"
    return name if section == "sections" else f"{section}.{name}"


def test_s12_14_the_table_says_what_the_code_says() -> None:
    assert len(TABLE) > 600
    for (section, name), (group, text) in TABLE.items():
        fate = fate_of(path_of(section, name))
        assert (fate.group, fate.text) == (group, text), f"{section}.{name}"


@pytest.mark.parametrize("section", ["general_settings", "router_settings", "litellm_settings", "litellm_params"])
def test_s12_14_every_setting_of_litellm_is_in_the_table(section: str) -> None:
    known = theirs()[section]
    assert len(known) > 50
    assert not sorted(name for name in known if (section, name) not in TABLE)


def test_s12_14_what_the_code_names_is_in_the_table() -> None:
    """Each name without a star, each section, each setting that is read, each parameter that is not sent."""
    named = {name for _, name in TABLE}
    spoken = {name.rpartition(".")[2] for _, _, names in ADVICE for name in names.split() if "*" not in name}
    assert not sorted(spoken - named)
    assert not sorted(({*SECTIONS} - {"litellm_settings", "router_settings", "general_settings"}) - named)
    assert not sorted({*ROUTING, *LIMITS} - named)
    assert not sorted(name for name in ROUTER_PARAMETERS if ("litellm_params", name) not in TABLE)


def test_no_setting_is_told_as_unknown() -> None:
    assert not [key for key, (_, text) in TABLE.items() if "unknown here" in text]


def test_what_is_read_is_not_told_as_not_supported() -> None:
    for name in (*ROUTING, *LIMITS):
        assert fate_of(f"router_settings.{name}").group != "not supported", name
