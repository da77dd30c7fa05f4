"""Environment names of the classic API's settings, and which setting of ours each gives (guarantee §9.4).

They are general names that may stand in an environment for somebody else's sake, so they rank below all others: each
counts only where neither file, environment nor command line says anything of its setting. What became of each that is
set is told by `gateway check`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.core.config.config_file import ConfigurationError, section
from gateway.core.config.litellm_advice import Group
from gateway.core.config.litellm_names import SettingFate
from gateway.core.names import has_nul

Place = tuple[str, str]
Read = Callable[[str], Any]
ORIGIN = "environment"
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
AS_IT_IS = None
"""What a value gives that asks for what is done anyway."""
DATABASE_FILE = "context-gateway.db"
LONGEST_TTL = 600.0
"""What a replica keeps of a conversation that another deletes is gone by then (guarantee §3.8)."""


@dataclass(frozen=True, slots=True)
class ClassicName:
    """A name, the setting that it gives, and how its text is read; `Read` may raise `ValueError` with a rule. Without a
    setting `text` says what holds instead, in the group `group`."""

    name: str
    setting: Place | None
    read: Read
    text: str = ""
    group: Group = "not supported"


def a_flag(text: str) -> bool:
    """A truth value, as environments have them."""
    word = text.strip().lower()
    if word not in (*TRUE, *FALSE):
        raise ValueError("must be true or false")
    return word in TRUE


def a_number(text: str) -> float:
    """A number greater than 0."""
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


NAMES = (
    ClassicName("CONTEXT_WINDOW_WARNING_THRESHOLD", ("context", "warning_threshold"), a_number),
    ClassicName("CONTEXT_CACHE_TTL", ("cache", "conversation_ttl"), _seconds_kept),
    ClassicName("CONVERSATION_PERSISTENCE_ENABLED", ("conversation", "store"), _stored),
    ClassicName("CONVERSATION_STORAGE_DIR", ("storage", "url"), _file_in),
    ClassicName("TELEMETRY_ENABLED", ("server", "metrics"), _metrics),
    ClassicName(
        "CONVERSATION_AUTO_SAVE", None, a_flag, "each turn is stored with its answer, or with `store: false` not at all"
    ),
    ClassicName("MAX_CONVERSATION_LENGTH", ("conversation", "max_turns"), _turns),
    ClassicName("SUMMARIZATION_ENABLED", ("context", "memory"), _summaries),
    ClassicName("SUMMARIZATION_THRESHOLD", ("memory", "threshold"), a_number),
)
"""One row each; a name without a setting gets one as soon as there is one."""


def fill_in(raw: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[Place, str], list[SettingFate]]:
    """Puts what these names say where nothing is said yet; returns the name by which each setting was given, and what
    became of each name.

    Args:
        raw: the settings of file, environment and command line; changed in place.

    Raises:
        ConfigurationError: a value cannot be read; names the variable.
    """
    given: dict[Place, str] = {}
    fates: list[SettingFate] = []
    for each in NAMES:
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
