"""Imports the `config.yaml` of a LiteLLM proxy: settings with an equivalent are mapped, no other stops the start.

What became of each setting is recorded for `gateway check` (guarantee §9, §12.14).
"""

import copy
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from gateway.core.config import setting_sections
from gateway.core.config.config_file import ENVIRONMENT_REFERENCE, ConfigurationError, resolve, section
from gateway.core.config.litellm_draft import (
    LitellmDraft,
    SettingFate,
    SettingReader,
    UnreadableValue,
    finish_limits,
    finish_routing,
    is_reference,
)
from gateway.core.config.litellm_table import LITELLM_SECTIONS, ON_HERE, ROUTER_PARAMETERS, SILENT, fate_of, rule_of
from gateway.core.config.model_list import STAR
from gateway.core.config.settings import SECTIONS

FOR_ALL_MODELS = ("drop_params", "additional_drop_params", "modify_params")
"""Parameters that LiteLLM sets for all models; here they are added to each."""
MAPPINGS = ("litellm_settings", "general_settings", "router_settings")
"""In order of precedence: of a setting in several of them, the last one counts."""
DATABASE = "DATABASE_URL"
MASTER = "LITELLM_MASTER_KEY"
NEAR_SECTION = 0.7
"""Similarity to the name of one of our sections from which a name counts as a typo."""


class EnvironmentReferences(dict[str, str]):
    """An environment in which each name has the value `os.environ/NAME`: no value is looked up, and no secret read."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> str:
        return ENVIRONMENT_REFERENCE + name


@dataclass(slots=True)
class ImportedConfig:
    """An imported file. `raw` holds only our sections and `model_list`.

    `environ` is the environment with the file's own `environment_variables` beneath it; `names_database`: LiteLLM's
    part of the file names LiteLLM's database, which is not ours.
    """

    raw: dict[str, Any]
    origin: str
    environ: dict[str, str]
    names_database: bool = False
    fates: list[SettingFate] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def tell(self, path: str) -> None:
        """Records what becomes of a setting, by the table."""
        self.fates.append(fate_of(path))

    def tell_off(self, path: str) -> None:
        """Records that a setting is off, as it is here."""
        self.fates.append(SettingFate(path, "kept", "off, as here"))


def move_in(raw: dict[str, Any], environ: Mapping[str, str], origin: str, *, referring: bool = False) -> ImportedConfig:
    """Maps LiteLLM's sections onto ours and removes them.
    `referring`: every `os.environ/NAME` stays a reference.
    Raises ConfigurationError: a section has a shape that cannot be read, or a setting that guards access (`master_key`)
    cannot be read."""
    moved = ImportedConfig(dict(raw), origin, EnvironmentReferences(environ) if referring else dict(environ))
    foreign = _foreign_sections(moved)
    moved.names_database = _names(foreign, DATABASE)
    _set_environment(moved, foreign.pop("environment_variables", None))
    credentials = foreign.pop("credential_list", None)
    _resolve_models(moved, credentials)
    models = moved.raw.get("model_list")
    draft = LitellmDraft([each for each in models if isinstance(each, dict)] if isinstance(models, list) else [])
    aliases: list[tuple[str, dict[str, Any]]] = []
    for name in MAPPINGS:
        values = foreign.pop(name, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"{origin}: {name}: must be a mapping")
        for key, value in values.items():
            path = f"{name}.{key}"
            if key in ("model_group_alias", "model_alias_map") and isinstance(value, dict):
                aliases.append((path, value))
            elif read := rule_of(path).read:
                _read(moved, draft, path, value, read)
            else:
                _move(moved, path, str(key), value)
    _finish(moved, draft)
    for path, value in aliases:
        _add_aliases(moved, path, value)
    moved.fates += [fate_of(name) for name in foreign]
    has_master = any(each.path.endswith("master_key") for each in moved.fates)
    if (key := moved.environ.get(MASTER)) and foreign_keys(raw) and not has_master:
        _add_master(moved, MASTER, key)
    _describe_models(moved)
    return moved


def foreign_keys(raw: Mapping[str, Any]) -> set[str]:
    """Returns the names of LiteLLM's sections."""
    return {name for name in raw if name in LITELLM_SECTIONS}


def _foreign_sections(moved: ImportedConfig) -> dict[str, Any]:
    """Removes and returns LiteLLM's sections: by name, or because a LiteLLM file has them and they are no typo."""
    is_litellms = bool(foreign_keys(moved.raw))
    found = {}
    for name in list(moved.raw):
        if name in SECTIONS or name == "model_list":
            continue
        slip = difflib.get_close_matches(name, (*SECTIONS, "model_list"), 1, cutoff=NEAR_SECTION)
        if name in LITELLM_SECTIONS or (is_litellms and not slip):
            found[name] = moved.raw.pop(name)
    return found


def _names(value: Any, variable: str) -> bool:
    """Returns whether a value names a variable of the environment, or a database, at any depth."""
    if isinstance(value, dict):
        named = any(key in (variable, "database_url") for key in value)
        return named or any(_names(each, variable) for each in value.values())
    if isinstance(value, list):
        return any(_names(each, variable) for each in value)
    return bool(value == ENVIRONMENT_REFERENCE + variable)


def _set_environment(moved: ImportedConfig, values: Any) -> None:
    """Adds the file's environment variables; the process's own environment takes precedence."""
    if not values:
        return
    if not isinstance(values, dict):
        raise ConfigurationError(f"{moved.origin}: environment_variables: must be a mapping")
    known = resolve(values, moved.environ, "environment_variables", lambda *_: None)
    texts = {name: _text(value) for name, value in known.items() if value is not None}
    texts = {name: text for name, text in texts.items() if name != DATABASE}
    moved.environ = type(moved.environ)({**texts, **moved.environ})
    moved.tell("environment_variables")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resolve_models(moved: ImportedConfig, credentials: Any) -> None:
    """Fills in what the entries of `model_list` take from the environment and from `credential_list`.

    A model whose address or key is missing is not served and reports why; the others are served.
    """
    models = moved.raw.get("model_list")
    if not isinstance(models, list):
        return
    named = _credentials(moved, credentials)
    moved.raw["model_list"] = [_entry(moved, each, named, f"model_list[{i}]") for i, each in enumerate(models)]


def _entry(moved: ImportedConfig, entry: Any, named: dict[str, Any], where: str) -> Any:
    if not isinstance(entry, dict):
        return entry
    entry = {name: value for name, value in entry.items() if value is not None}
    params = entry.get("litellm_params")
    unset: list[str] = []

    def missing(path: str, name: str) -> None:
        if path.split(".")[-1] not in ROUTER_PARAMETERS:
            unset.append(f"the environment has no {name}")

    def unknown(path: str, name: str) -> None:
        moved.warnings.append(f"{path} is left out: the environment has no {name}")

    if isinstance(params, dict):
        credential = params.get("litellm_credential_name")
        extra = named.get(str(credential), {})
        if credential is not None and not extra:
            if not params.get("api_key"):  # its clients' own keys would go to the provider
                unset.append(f"credential_list does not have {credential}")
            moved.warnings.append(f"{where}.litellm_params: credential_list does not have {credential}")
        params = {**extra, **{name: value for name, value in params.items() if value is not None}}
        params = resolve(params, moved.environ, f"{where}.litellm_params", missing)
        entry["litellm_params"] = {name: value for name, value in params.items() if value is not None}
    rest = {name: value for name, value in entry.items() if name != "litellm_params"}
    info = rest.get("model_info")
    if isinstance(info, dict):
        rest["model_info"] = {name: value for name, value in info.items() if value is not None}
    return {**entry, **resolve(rest, moved.environ, where, unknown), "unset": tuple(dict.fromkeys(unset))}


def _credentials(moved: ImportedConfig, values: Any) -> dict[str, Any]:
    """Returns the parameters of LiteLLM's `credential_list`, by the entries' `litellm_credential_name`."""
    if values is None:
        return {}
    moved.tell("credential_list")
    listed = values if isinstance(values, list) else []
    return {
        str(each.get("credential_name")): dict(each.get("credential_values") or {})
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("credential_values") or {}, dict)
    }


def _read(moved: ImportedConfig, draft: LitellmDraft, path: str, value: Any, read: SettingReader) -> None:
    """Reads a setting that has an equivalent in our sections."""
    missing: list[str] = []
    value = resolve(value, moved.environ, path, lambda _, name: missing.append(name))
    if value is None or value is False or value in ("", [], {}):
        if missing:
            moved.fates.append(SettingFate(path, "not supported", f"the environment has no {missing[0]}"))
        else:
            moved.tell_off(path)
        return
    try:
        read(draft, path, value)
        moved.tell(path)
    except UnreadableValue as error:
        moved.fates.append(SettingFate(path, "not supported", f"ignored: {error}"))


def _finish(moved: ImportedConfig, draft: LitellmDraft) -> None:
    """Completes the draft from all settings together, and merges it beneath our own sections."""
    finish_routing(draft)
    for path, text in finish_limits(draft):
        moved.fates = [each for each in moved.fates if each.path != path]
        moved.fates.append(SettingFate(path, "not supported", f"ignored: {text}"))
    moved.warnings += draft.warnings
    draft.warnings = moved.warnings
    draft.put_in(moved.raw, moved.origin)


def _move(moved: ImportedConfig, path: str, key: str, value: Any) -> None:
    """Maps a setting of LiteLLM's three mappings that has no reader."""
    if key == "master_key":
        _master(moved, path, value)
        return
    named = is_reference(value)
    value = resolve(value, moved.environ, path, lambda *_: None)
    if key == "default_litellm_params" and isinstance(value, dict):
        for name, each in value.items():
            _set_for_all(moved.raw, name, each)
        moved.tell(path)
    elif key in FOR_ALL_MODELS:
        if _set_for_all(moved.raw, key, value):
            moved.tell(path)
        else:
            text = "no model here is called through litellm, and others get requests unchanged"
            moved.fates.append(SettingFate(path, "not supported", text))
    elif value in (None, False, "", [], {}) and not named and key not in ON_HERE:
        moved.tell_off(path)
    else:
        moved.tell(path)


def _master(moved: ImportedConfig, path: str, value: Any) -> None:
    """Adds the master key, which may do everything and guards access. If it is named but not set, that is an error."""

    def missing(where: str, name: str) -> None:
        raise ConfigurationError(f"{moved.origin}: {where}: the environment has no {name}")

    key = resolve(value, moved.environ, path, missing)
    if key:
        _add_master(moved, path, str(key))


def _add_master(moved: ImportedConfig, path: str, key: str) -> None:
    auth = section(moved.raw, "auth", moved.origin)
    keys = auth.get("keys") or []
    if not isinstance(keys, list):
        raise ConfigurationError(f"{moved.origin}: auth.keys: must be a list")
    # Made without validation: LiteLLM's documents use `sk-1234`, which is too short for a key of ours.
    auth["keys"] = [
        *keys,
        setting_sections.ApiKey.model_construct(
            key=SecretStr(key), tenant="master", roles=(setting_sections.USER, setting_sections.ADMIN)
        ),
    ]
    moved.tell(path)


def _add_aliases(moved: ImportedConfig, path: str, aliases: dict[str, Any]) -> None:
    """Adds further names of listed models, with all their entries. LiteLLM writes
    `alias: model` or `alias: {model: …, hidden: …}`."""
    models = moved.raw.get("model_list")
    entries = [each for each in models if isinstance(each, dict)] if isinstance(models, list) else []
    listed = {each.get("model_name") for each in entries}
    lost = []
    for alias, target in aliases.items():
        name = target.get("model") if isinstance(target, dict) else target
        found = [each for each in entries if each.get("model_name") == name] or _by_star(entries, str(name))
        if not found or not isinstance(models, list):
            lost.append(str(alias))
        elif alias not in listed:
            models += [{**copy.deepcopy(each), "model_name": alias} for each in found]
            if _limit_alike(moved.raw, str(name), alias):
                moved.warnings.append(f"{path}: {alias} has limits of its own, the same as {name}")
    if lost:
        moved.warnings.append(f"{path}: {', '.join(lost)} stand for models that model_list does not have")
    moved.tell(path)


def _limit_alike(raw: dict[str, Any], name: str, alias: str) -> bool:
    """Copies a model's limits to its alias, which would otherwise bypass them. Returns whether there are any."""
    limits = raw.get("limits")
    models = limits.get("models") if isinstance(limits, dict) else None
    if not isinstance(models, dict) or name not in models:
        return False
    models.setdefault(alias, copy.deepcopy(models[name]))
    return True


def _by_star(entries: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Returns the first entry whose pattern matches a name, resolved for that name."""
    for each in entries:
        before, star, after = str(each.get("model_name")).partition("*")
        params = each.get("litellm_params")
        if not star or not isinstance(params, dict) or not (name.startswith(before) and name.endswith(after)):
            continue
        between = name[len(before) : len(name) - len(after)]
        if STAR.fullmatch(between):
            return [{**each, "litellm_params": {**params, "model": str(params.get("model")).replace("*", between)}}]
    return []


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


def _describe_models(moved: ImportedConfig) -> None:
    """Records what becomes of the parameters of `model_list` that are not sent with requests."""
    models = moved.raw.get("model_list")
    entries = [each for each in models if isinstance(each, dict)] if isinstance(models, list) else []
    used: dict[str, None] = {}
    for entry in entries:
        params = entry.get("litellm_params")
        used |= dict.fromkeys(params if isinstance(params, dict) else ())
    unused = [name for name in used if name in ROUTER_PARAMETERS and name not in SILENT]
    moved.fates += [fate_of(f"model_list[].litellm_params.{name}") for name in unused]
