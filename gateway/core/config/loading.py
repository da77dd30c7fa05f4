"""Reads `config.yaml` and the environment into `Settings`, and reports precisely what is wrong with them.

Order, later wins: defaults, classic names, file, environment, command line. Environment names of the classic API
(guarantee §9.4) are general and may be meant for another program: each counts only if nothing else sets its setting.
`gateway check` reports what became of each that is set.
"""

import difflib
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from gateway.core.config import setting_sections
from gateway.core.config.config_file import (
    ENVIRONMENT_REFERENCE,
    ConfigurationError,
    fault,
    read_file,
    resolve,
    section,
)
from gateway.core.config.exposure import is_own, weak_keys
from gateway.core.config.litellm import DATABASE, ImportedConfig, move_in
from gateway.core.config.litellm_draft import Group, SettingFate
from gateway.core.config.settings import SECTIONS, Settings
from gateway.core.frozen_records import record
from gateway.core.names import CREDENTIAL, has_nul
from gateway.core.plugins import load_plugin, plugins_of

Place = tuple[str, str]
Read = Callable[[str], Any]
ORIGIN = "environment"
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
AS_IT_IS = None
"""Result for a value that asks for the default."""
DATABASE_FILE = "context-gateway.db"
LONGEST_TTL = 600.0
"""Seconds by which a replica has dropped a conversation that another one deleted (guarantee §3.8)."""


@record
class ClassicName:
    """An environment name, its setting, and how its text is read; `read` may raise `ValueError` with a rule. `text`:
    without a setting, what holds instead, in the group `group`; with one, what it sets if that is not the value."""

    name: str
    setting: Place | None
    read: Read
    text: str = ""
    group: Group = "not supported"


def a_flag(text: str) -> bool:
    """Parses a truth value of the environment. Raises ValueError: it is none."""
    word = text.strip().lower()
    if word not in (*TRUE, *FALSE):
        raise ValueError("must be true or false")
    return word in TRUE


def a_number(text: str) -> float:
    """Parses a number greater than 0. Raises ValueError: it is none."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ValueError("must be a number greater than 0")
    return found


def _seconds_kept(text: str) -> float:
    return min(a_number(text), LONGEST_TTL)


def _metrics(text: str) -> str | None:
    return AS_IT_IS if a_flag(text) else "off"


def _stored(text: str) -> bool | None:
    return AS_IT_IS if a_flag(text) else False


def _turns(text: str) -> int:
    found = a_number(text)
    if found != int(found):
        raise ValueError("must be a whole number greater than 0")
    return int(found)


def _summaries(text: str) -> str | None:
    return "both" if a_flag(text) else AS_IT_IS


def _file_in(folder: str) -> str:
    if "?" in folder or has_nul(folder):
        raise ValueError("must be a folder without '?' in its name")
    return f"sqlite:///{folder.rstrip('/') or '/'}/{DATABASE_FILE}"


CLASSIC_NAMES = (
    ClassicName("CONTEXT_WINDOW_WARNING_THRESHOLD", ("context", "warning_threshold"), a_number),
    ClassicName("CONTEXT_CACHE_TTL", ("cache", "conversation_ttl"), _seconds_kept, f"at most {LONGEST_TTL:.0f}"),
    ClassicName(
        "CONVERSATION_PERSISTENCE_ENABLED",
        ("conversation", "store"),
        _stored,
        "`false` sets `false`: no message is remembered unless its request says so",
    ),
    ClassicName(
        "CONVERSATION_STORAGE_DIR", ("storage", "url"), _file_in, f"the SQLite file `{DATABASE_FILE}` in that folder"
    ),
    ClassicName("TELEMETRY_ENABLED", ("server", "metrics"), _metrics, "`false` sets `off`"),
    ClassicName(
        "CONVERSATION_AUTO_SAVE", None, a_flag, "each turn is stored with its answer, or with `store: false` not at all"
    ),
    ClassicName("MAX_CONVERSATION_LENGTH", ("conversation", "max_turns"), _turns),
    ClassicName(
        "SUMMARIZATION_ENABLED",
        ("context", "memory"),
        _summaries,
        "`true` sets `both`: [old turns are summarized](rolling-summary.md)",
    ),
    ClassicName("SUMMARIZATION_THRESHOLD", ("memory", "threshold"), a_number),
)
"""One row for each name; a name without a setting gets one when the setting exists."""


def fill_in(raw: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[Place, str], list[SettingFate]]:
    """Applies the classic names to settings that nothing else sets; returns the name that gave each setting, and what
    became of each name.
    `raw`: the settings of file, environment and command line; changed in place.
    Raises ConfigurationError: a value cannot be read; names the variable."""
    given: dict[Place, str] = {}
    fates: list[SettingFate] = []
    for each in CLASSIC_NAMES:
        text = environ.get(each.name)
        if not text:
            continue
        if each.setting is None:
            fates.append(SettingFate(each.name, each.group, each.text, ORIGIN))
            continue
        part, key = each.setting
        values = raw.get(part) or {}
        if not isinstance(values, dict):
            continue  # reported with the other faults
        if key in values:
            fates.append(SettingFate(each.name, "replaced", f"`{part}.{key}`, which is set", ORIGIN))
            continue
        value = _read(each, text)
        if value is not AS_IT_IS:
            section(raw, part, ORIGIN)[key] = value
            given[part, key] = f"{ORIGIN}: {each.name}"
        fates.append(SettingFate(each.name, "kept", f"`{part}.{key}`", ORIGIN))
    return given, fates


def _read(name: ClassicName, text: str) -> Any:
    try:
        return name.read(text)
    except ValueError as error:
        raise ConfigurationError(f"{ORIGIN}: {name.name}: {error}") from None


# Secrets outside the configuration: in files, or in a vault that a separate package asks.
#
# `file:///run/secrets/NAME` is the content of that file. `SCHEME://…` is what the entry point SCHEME of the group
# `gateway.secrets` returns for it: a callable that takes the whole reference and returns the secret, asked once at
# start.

SECRETS_GROUP = "gateway.secrets"
FILE_SCHEME = "file://"
MAX_SECRET_BYTES = 64 * 1024
SECRET_REFERENCE = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
ADDRESSES = re.compile(r"https?|rediss?|valkeys?|unix|postgres(?:ql(?:\+asyncpg)?)?|sqlite")
"""URL schemes of settings themselves; no package reads them."""


def look_up(value: Any, origin: str, where: str, faults: list[str]) -> Any:
    """Replaces each reference to a secret in a value by that secret.
    `origin`: what the configuration was read from; `where`: the path of the value in it; `faults`: receives why a
    secret cannot be read, or that no package reads its scheme, and nothing of the secret."""
    if isinstance(value, dict):
        return {name: look_up(each, origin, f"{where}.{name}", faults) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [look_up(each, origin, f"{where}[{number}]", faults) for number, each in enumerate(value)]
    if isinstance(value, setting_sections.ApiKey):  # LiteLLM's master key, which is an object by now
        key = look_up(value.key.get_secret_value(), origin, f"{where}.key", faults)
        return value.model_copy(update={"key": SecretStr(key or "")})
    if not isinstance(value, str) or (found := SECRET_REFERENCE.match(value)) is None or ADDRESSES.fullmatch(found[1]):
        return value
    try:
        return _of_file(value) if value.startswith(FILE_SCHEME) else _of_package(value, found[1], where)
    except _Unreadable as fault:
        faults.append(f"{origin}: {where}: {fault}")
        return None


class _Unreadable(Exception):
    """A secret cannot be read."""


def _of_file(reference: str) -> str:
    path = Path(reference.removeprefix(FILE_SCHEME))
    if not path.is_absolute():
        raise _Unreadable("a secret's file is named as file:///PATH, from the root")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except OSError as fault:
        raise _Unreadable(f"{path}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise _Unreadable(f"{path}: not UTF-8") from None
    if not text or len(content) > MAX_SECRET_BYTES:
        raise _Unreadable(f"{path}: {'holds nothing' if not text else f'more than {MAX_SECRET_BYTES} bytes'}")
    return text


def _of_package(reference: str, scheme: str, where: str) -> str:
    known = {found.name: found for found in plugins_of(SECRETS_GROUP)}
    if scheme not in known:
        if CREDENTIAL.search(where.rpartition(".")[2]) is None:
            return reference  # some other text
        names = ", ".join(sorted(known)) or "none"
        raise _Unreadable(
            f"no package is installed that reads {scheme}:// (entry points {SECRETS_GROUP}; there is: {names})"
        )
    try:
        found = load_plugin(known[scheme])(reference)
    except Exception as fault:  # noqa: BLE001 - code of others may fail in any way
        raise _Unreadable(f"{scheme}:// failed: {type(fault).__name__}") from None
    if not isinstance(found, str) or not found:
        raise _Unreadable(f"{scheme}:// gave no text")
    return found


__all__ = ["ConfigurationError", "environment_names", "load_settings", "process_environment"]
ENVIRONMENT_ALIASES = {
    DATABASE: ("storage", "url"),
    "REDIS_URL": ("cache", "url"),
    "OPENAI_API_KEY": ("upstream", "api_key"),
    "OPENAI_API_BASE": ("upstream", "api_base"),
    "OPENAI_BASE_URL": ("upstream", "api_base"),
    "CONTEXT_PLANNER_MODEL": ("context", "planner_model"),
    "SUMMARIZER_MODEL": ("context", "summarizer_model"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
    "OTEL_EXPORTER_OTLP_HEADERS": ("telemetry", "headers"),
    "OTEL_SERVICE_NAME": ("telemetry", "service_name"),
}
"""Of two names for one setting the later one counts; `GATEWAY_…` takes precedence over both."""
BASES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
GUARDS = "guards"
"""A top-level list beside the sections."""
UNION_MEMBERS = ("UpstreamTimeouts", "constrained-float")
"""Names that pydantic puts into the path of a setting of a union type."""
SLIP = 0.9
"""Likeness of a name with one slip to the name that was meant (`difflib`)."""
INTERNAL = ("warnings", "moved", "origins", "storage_is_named")
"""Fields of `Settings` that no file sets."""


def load_settings(path: str | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Loads settings from a file (optional), the environment, and `section.key` overrides.
    Raises ConfigurationError: the file is missing, is no YAML mapping, or holds an unknown or unusable setting."""
    origin = path or "environment"
    places: dict[str, str] = {}
    repeated: list[str] = []
    raw = read_file(path, places, repeated) if path else {}
    for name in raw.keys() & set(INTERNAL):
        raise ConfigurationError(f"{origin}: {name}: unknown setting; known: {', '.join(SECTIONS)}, model_list")
    moved = move_in(raw, environ, origin)
    moved.warnings += [*repeated, *_misspelt(environ)]

    faults: list[str] = []

    def missing(where: str, name: str) -> None:
        faults.append(f"{origin}: {where}: the environment has no {name}")

    named = [name for name in (*SECTIONS, GUARDS) if name in moved.raw]
    ours = {name: resolve(moved.raw[name], moved.environ, name, missing) for name in named}
    places = {each: _with_references(each, place, moved.raw) for each, place in places.items()}
    moved.raw |= ours
    found = _settings(moved, overrides or {}, (), faults)
    origins = {**_imported(moved, places), **places, **found.origins}
    return found.model_copy(update={"origins": origins, "warnings": (*found.warnings, *_misspelt_of_models(found))})


def _imported(moved: ImportedConfig, places: Mapping[str, str]) -> dict[str, str]:
    """Returns the origin of settings that no section of ours has: they were mapped from LiteLLM's sections."""
    origin = f"{moved.origin}, LiteLLM's sections"
    named = (f"{part}.{key}" for part in SECTIONS for key in _keys(moved.raw.get(part)))
    return {path: origin for path in named if path not in places}


def _keys(section_values: Any) -> list[str]:
    return list(section_values) if isinstance(section_values, dict) else []


def _with_references(path: str, place: str, raw: Mapping[str, Any]) -> str:
    """Returns a place, followed by the references to secrets and to the environment in its value."""
    part, _, key = path.partition(".")
    section_values = raw.get(part)
    value = section_values.get(key) if key and isinstance(section_values, dict) else None
    return ", ".join([place, *dict.fromkeys(_references(value))])


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _references(each)
    elif isinstance(value, str):
        scheme = SECRET_REFERENCE.match(value)
        is_secret = scheme is not None and not ADDRESSES.fullmatch(scheme[1])
        if value.startswith(ENVIRONMENT_REFERENCE) or is_secret:
            yield value


def _settings(
    moved: ImportedConfig, overrides: Mapping[str, Any], ignored: tuple[str, ...], faults: list[str]
) -> Settings:
    """Builds the settings. `ignored`: names of the environment that do not count; `faults`: secrets that are missing,
    all of which are named together with others that cannot be read."""
    raw = dict(moved.raw)
    if moved.names_database:
        ignored = (*ignored, DATABASE)
    environ = {name: text for name, text in moved.environ.items() if name not in ignored}
    origins = _apply_environment(raw, environ)
    for name, value in overrides.items():
        part, key = name.split(".")
        section(raw, part, "command line")[key] = value
        origins[part, key] = "command line"
    classic, fates = fill_in(raw, environ)
    origins |= classic
    for name, value in raw.items():
        if isinstance(value, dict):
            at = {key: origins.get((name, key), moved.origin) for key in value}
            raw[name] = {key: look_up(each, at[key], f"{name}.{key}", faults) for key, each in value.items()}
        else:
            raw[name] = look_up(value, moved.origin, name, faults)
    if faults:
        raise ConfigurationError("\n".join(faults))
    named = isinstance(raw.get("storage"), dict) and "url" in raw["storage"]
    given = {f"{part}.{key}": origin for (part, key), origin in origins.items()}
    extra = {"moved": (*moved.fates, *fates), "storage_is_named": named, "origins": given}
    try:
        settings = Settings.model_validate({**raw, **extra})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, moved.origin, origins)) from None
    if is_own(settings.upstream.api_base, settings):
        said = origins.get(("upstream", "api_base"), moved.origin)
        by = said.removeprefix("environment: ")
        if by not in BASES:
            raise ConfigurationError(f"{said}: upstream.api_base: is the address that the gateway itself listens on")
        moved.warnings.append(f"{by} is ignored: it is the gateway's own address, meant for its clients")
        return _settings(moved, overrides, (*ignored, by), faults)
    bases = {text for name in BASES if (text := environ.get(name))}
    if len(bases) > 1 and origins.get(("upstream", "api_base")) == f"environment: {BASES[0]}":
        moved.warnings.append(f"{BASES[0]} and {BASES[1]} differ: {BASES[0]} counts")
    return settings.model_copy(update={"warnings": (*moved.warnings, *weak_keys(settings))})


def environment_names() -> dict[str, tuple[str, str]]:
    """Returns every environment name with its setting."""
    names = dict(ENVIRONMENT_ALIASES)
    for part in SECTIONS:
        for key in _fields(Settings, (part,)):
            names[f"GATEWAY_{part}_{key}".upper()] = (part, key)
    return names


def _misspelt(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a warning for each name of the environment that names no setting of a section, though it begins with
    one."""
    for part in SECTIONS:
        start = f"GATEWAY_{part}_".upper()
        known = [key.upper() for key in _fields(Settings, (part,))]
        keys = {name.removeprefix(start) for name in environ if name.startswith(start)}
        for key in sorted(keys.difference(known)):
            near = difflib.get_close_matches(key, known, 1, cutoff=0.5)
            told = f"; did you mean {start + near[0]!r}?" if near else ""
            yield f"environment: {start}{key}: unknown setting, ignored{told}"


def _misspelt_of_models(settings: Settings) -> Iterator[str]:
    """Yields a warning for each parameter and fact of a model whose name is nearly a known one: any other is LiteLLM's,
    or the provider's own."""
    for index, entry in enumerate(settings.model_list):
        for part, values in (("litellm_params", entry.litellm_params), ("model_info", entry.model_info)):
            for name in values.model_extra or ():
                for near in difflib.get_close_matches(name, type(values).model_fields, 1, cutoff=SLIP):
                    yield f"model_list[{index}].{part}.{name}: not a setting of the gateway; did you mean {near!r}?"


def _apply_environment(raw: dict[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Puts the environment's settings over those of the file; returns the name by which each was given."""
    given: dict[tuple[str, str], str] = {}
    for name, (part, key) in environment_names().items():
        if environ.get(name):
            section_values = raw.get(part) or {}
            if not isinstance(section_values, dict):
                continue  # reported with the other faults
            try:
                raw[part] = {**section_values, key: _parsed(environ[name], _annotation(part, key))}
            except yaml.YAMLError as error:
                raise ConfigurationError(f"environment: {name}: {fault(error)}") from None
            given[part, key] = f"environment: {name}"
    return given


def _annotation(part: str, key: str) -> Any:
    model = Settings.model_fields[part].annotation
    return model.model_fields[key].annotation if isinstance(model, type) and issubclass(model, BaseModel) else Any


def _parsed(text: str, annotation: Any) -> Any:
    """Parses a value of the environment: texts and words verbatim, lists also comma-separated, all else as YAML."""
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    if setting_sections.words(annotation) or str in members or SecretStr in members:
        return None if type(None) in members and text in ("null", "~") else text
    if get_origin(annotation) is tuple and not text.lstrip().startswith(("[", "-", "{")):
        return [each.strip() for each in text.split(",") if each.strip()]
    return yaml.safe_load(text)


def _fields(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Returns the names known at a path of the settings."""
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
    found = [(tuple(step for step in each["loc"] if step not in UNION_MEMBERS), each) for each in error.errors()]
    better = {path for path, each in found if each["type"] != "model_type"}
    for path, problem in found:
        text = problem["msg"].removeprefix("Value error, ")
        of = path[:2] or tuple(text.partition(":")[0].split("."))
        origin = next((name for start, name in origins.items() if of == start), file)
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        if problem["type"] == "extra_forbidden":
            known = [f for f in _fields(Settings, path[:-1]) if f not in (*INTERNAL, "unset")]
            near = difflib.get_close_matches(str(path[-1]), known, 1, cutoff=0.5)
            text = "unknown setting" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
        elif problem["type"] == "model_type":
            if path in better:  # of a setting that may be a number or a mapping
                continue
            text = "must be a mapping"
        elif problem["type"] == "tuple_type":
            text = "must be a list"
        elif problem["type"] == "string_type":
            text = "must be a text: write it in quotes"
        elif problem["type"] == "too_short" and problem["ctx"]["field_type"] == "Value":  # a secret
            text = f"must have at least {problem['ctx']['min_length']} characters"
        lines.append(": ".join(filter(None, (origin, where, text))))
    return "\n".join(lines)


def process_environment() -> Mapping[str, str]:
    """Returns the process's environment; nothing else reads it."""
    return os.environ
