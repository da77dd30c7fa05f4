"""The configuration in force: each setting with its value, without secrets, and its origin."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr

from gateway.core import jsons, names
from gateway.core.config.settings import SECTIONS, Settings
from gateway.core.frozen_records import record

HIDDEN_VALUE = "set, not shown"
DEFAULT = "default"
KEPT_ELSEWHERE = ("prompt_profiles",)
"""Sections of texts, which are shown elsewhere."""
ADDRESS = re.compile(r"(?<=://).+", re.DOTALL)
PARAMETER = re.compile(r"(?<=[?&;#])([^=&#]+)=([^&]*)")
SIGNATURES = ("sig", "signature", "code", "pwd", "pass")
"""Parameters of URLs that hold credentials, under names that no header has."""
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
"""A link in a description, which is Markdown of docs/configuration.md."""
FROM_OUTSIDE = re.compile(r", (?!os\.environ/)[a-z][a-z0-9+.-]*://")
"""In an origin: the value was read from a secrets file, or by a package that queries a vault."""


@record
class SettingInForce:
    """`name` is `section.key`; `value` as JSON or a text; `origin` the default, a file and line, the name of an
    environment variable or the command line."""

    name: str
    value: str
    origin: str
    description: str

    @property
    def is_default(self) -> bool:
        """Whether the setting was left at its default."""
        return self.origin == DEFAULT


def settings_in_force(settings: Settings) -> dict[str, list[SettingInForce]]:
    """Returns all settings by section, in the order of the documentation."""
    return {section: list(_of_section(settings, section)) for section in SECTIONS if section not in KEPT_ELSEWHERE}


def prompt_texts(settings: Settings) -> dict[str, str]:
    """Returns the texts of prompt profiles that are set, by their names below `prompt_profiles`."""
    profiles = settings.prompt_profiles
    texts = {"core": profiles.core, **{f"modes.{name}": text for name, text in profiles.modes}}
    texts |= {"tools": profiles.tools, "error_handling": profiles.error_handling}
    return {name: text for name, text in texts.items() if text}


def _of_section(settings: Settings, section: str) -> Iterator[SettingInForce]:
    values = getattr(settings, section)
    for name, field in type(values).model_fields.items():
        path = f"{section}.{name}"
        origin = settings.origins.get(path, DEFAULT)
        value = getattr(values, name)
        is_secret = value is not None and (names.is_credential(name) or FROM_OUTSIDE.search(origin) is not None)
        text = HIDDEN_VALUE if is_secret and value not in ((), {}) else _text(section, name, value)
        yield SettingInForce(path, text, address(origin), LINK.sub(r"\1", field.description or ""))


def _text(section: str, name: str, value: Any) -> str:
    if (section, name) == ("auth", "keys"):
        return f"{len(value)} keys" if value else "none"
    if (section, name) == ("storage", "url"):
        return _database(value) if "@" in value or "?" in value else value
    shown = without_secrets(value)
    return shown if isinstance(shown, str) else "not set" if shown is None else jsons.dumps_text(shown)


def _database(url: str) -> str:
    from gateway.storage.database import shown

    return address(shown(url))


def without_secrets(value: Any) -> Any:
    """Redacts a value of the configuration for a person: credentials, in addresses too, are only reported as set."""
    if isinstance(value, SecretStr):
        return HIDDEN_VALUE
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True) | {
            name: getattr(value, name) for name in value.model_fields_set if name in type(value).model_fields
        }
    if isinstance(value, Mapping):
        return {
            str(name): HIDDEN_VALUE if _is_secret(str(name)) and each not in (None, "") else without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    if isinstance(value, str):
        return address(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def address(text: str) -> str:
    """Removes the credentials that an address in a text holds."""
    return ADDRESS.sub(lambda found: _without_credentials(found[0]), text)


def _without_credentials(rest: str) -> str:
    """Redacts what follows `://`. A password may hold any character: `/`, `?`, `#`, `@` and blanks, too."""
    hidden = PARAMETER.sub(lambda m: f"{m[1]}=…" if _is_secret(unquote(m[1])) else m[0], rest)
    if "@" in rest and "@" not in hidden:
        return "…"  # nobody can tell what belongs to a password
    _, at, shown_part = hidden.rpartition("@")
    return f"…@{shown_part}" if at else hidden


def _is_secret(name: str) -> bool:
    return name.lower() in (*names.SECRET_PARAMETERS, *SIGNATURES) or names.is_credential(name)
