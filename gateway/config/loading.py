"""Reads `config.yaml` and the environment into `Settings`, and says precisely what is wrong with them.

Order, later wins: defaults, file, environment, command line.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gateway.config.settings import SECTIONS, Settings

ALIASES = {
    "DATABASE_URL": ("storage", "url"),
    "REDIS_URL": ("cache", "url"),
    "OPENAI_API_KEY": ("upstream", "api_key"),
    "OPENAI_API_BASE": ("upstream", "api_base"),
    "CONTEXT_PLANNER_MODEL": ("context", "planner_model"),
    "SUMMARIZER_MODEL": ("context", "summarizer_model"),
}
FOR_ALL_MODELS = ("drop_params", "additional_drop_params", "modify_params")
"""Parameters that LiteLLM sets for all models; here they are added to each."""
UNION_MEMBERS = ("Timeouts", "constrained-float")
"""Names that pydantic puts into the path of a setting that may be one thing or another."""
LITELLM_SECTIONS = ("litellm_settings", "router_settings", "general_settings")


class ConfigurationError(Exception):
    """A configuration that cannot be used; the message names file, path and the nearest right name."""


def load_settings(path: str | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings out of a file (optional), the environment, and `section.key` overrides.

    Raises:
        ConfigurationError: the file is missing, is no YAML mapping, or holds an unknown or unusable setting.
    """
    origin = path or "environment"
    raw = _read_file(path) if path else {}
    warnings: list[str] = []
    raw = {name: value for name, value in raw.items() if value is not None}  # an empty section says nothing
    raw = _from_litellm(_resolve(raw, environ, "", origin), origin, warnings)
    origins = _apply_environment(raw, environ)
    for name, value in (overrides or {}).items():
        section, key = name.split(".")
        _section(raw, section, "command line")[key] = value
        origins[section, key] = "command line"
    try:
        return Settings.model_validate({**raw, "warnings": tuple(warnings)})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, origin, origins)) from None


def environment_names() -> dict[str, tuple[str, str]]:
    """Every environment name and its setting; `auth.keys` can be set in the file alone."""
    names = dict(ALIASES)
    for section in SECTIONS:
        for key in _fields(Settings, (section,)):
            if (section, key) != ("auth", "keys"):
                names[f"GATEWAY_{section}_{key}".upper()] = (section, key)
    return names


def _read_file(path: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8: {error.reason}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not YAML: {_fault(error)}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}: must be a mapping of sections")
    return data


def _fault(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself, which may hold a key."""
    mark = getattr(error, "problem_mark", None)
    position = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{getattr(error, 'problem', None) or 'cannot be read'}{position}"


def _section(raw: dict[str, Any], name: str, origin: str) -> dict[str, Any]:
    """A copy of a section, which may be changed; a new one if there is none."""
    values = raw.get(name)
    if values is not None and not isinstance(values, dict):
        raise ConfigurationError(f"{origin}: {name}: must be a mapping")
    raw[name] = dict(values or {})
    found: dict[str, Any] = raw[name]
    return found


def _resolve(value: Any, environ: Mapping[str, str], where: str, origin: str) -> Any:
    """Replaces `os.environ/NAME`, LiteLLM's way to name a secret."""
    if isinstance(value, dict):
        return {str(k): _resolve(v, environ, f"{where}.{k}".lstrip("."), origin) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolve(v, environ, f"{where}[{i}]", origin) for i, v in enumerate(value)]
    if isinstance(value, str) and value.startswith("os.environ/"):
        name = value.removeprefix("os.environ/")
        if name not in environ:
            raise ConfigurationError(f"{origin}: {where}: the environment has no {name}")
        return environ[name]
    return value


def _from_litellm(raw: dict[str, Any], origin: str, warnings: list[str]) -> dict[str, Any]:
    """Maps LiteLLM's own sections where there is an equivalent, and warns where not (guarantee §9)."""
    for section in LITELLM_SECTIONS:
        values = raw.pop(section, None) or {}
        if not isinstance(values, dict):
            raise ConfigurationError(f"{origin}: {section}: must be a mapping")
        for key, value in values.items():
            if key == "master_key" and value:
                auth = _section(raw, "auth", origin)
                keys = auth.get("keys") or []
                if not isinstance(keys, list):
                    raise ConfigurationError(f"{origin}: auth.keys: must be a list")
                auth["keys"] = [*keys, {"key": value, "tenant": "master"}]
            elif key in ("request_timeout", "timeout") and value:
                _section(raw, "upstream", origin).setdefault("first_byte", value)
            elif not (key in FOR_ALL_MODELS and _set_for_all(raw, key, value)):
                warnings.append(f"{section}.{key} has no equivalent here and is ignored")
    return raw


def _set_for_all(raw: dict[str, Any], parameter: str, value: Any) -> bool:
    """Sets a default in the `litellm_params` of every model. Returns whether any of them uses it: requests in
    OpenAI's protocol are forwarded unchanged."""
    models = raw.get("model_list")
    matters = False
    for entry in models if isinstance(models, list) else ():
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if isinstance(params, dict):
            entry["litellm_params"] = {parameter: value, **params}
            provider, named, _ = str(params.get("model")).partition("/")
            matters = matters or bool(named and provider not in ("openai", "azure"))
    return matters


def _apply_environment(raw: dict[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Puts the environment's settings over those of the file; returns the name by which each was given."""
    given: dict[tuple[str, str], str] = {}
    for name, (section, key) in environment_names().items():
        if environ.get(name):
            text = environ[name]
            is_text = key in ("url", "api_key", "api_base", "host")
            section_values = raw.get(section) or {}
            if not isinstance(section_values, dict):
                continue  # reported with the other faults
            try:
                raw[section] = {**section_values, key: text if is_text else yaml.safe_load(text)}
            except yaml.YAMLError as error:
                raise ConfigurationError(f"environment: {name}: {_fault(error)}") from None
            given[section, key] = f"environment: {name}"
    return given


def _fields(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The names known at a path of the settings."""
    current: Any = model
    for step in path:
        if isinstance(step, int):
            continue
        field = getattr(current, "model_fields", {}).get(step)
        if field is None:
            return []
        annotation = field.annotation
        arguments = [a for a in getattr(annotation, "__args__", ()) if isinstance(a, type) and issubclass(a, BaseModel)]
        current = arguments[0] if arguments else annotation
    return list(getattr(current, "model_fields", {}))


def _explain(error: ValidationError, file: str, origins: Mapping[tuple[str, str], str]) -> str:
    lines = []
    for problem in error.errors():
        path = tuple(step for step in problem["loc"] if step not in UNION_MEMBERS)
        origin = next((name for start, name in origins.items() if path[:2] == start), file)
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        text = problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = [f for f in _fields(Settings, path[:-1]) if f != "warnings"]
            near = difflib.get_close_matches(str(path[-1]), known, 1, cutoff=0.5)
            text = "unknown setting" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
        lines.append(f"{origin}: {where}: {text}")
    return "\n".join(lines)


def process_environment() -> Mapping[str, str]:
    """The process's environment: the one place that touches it."""
    return os.environ
