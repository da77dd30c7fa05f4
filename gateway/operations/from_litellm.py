"""`gateway check --from-litellm`: converts a LiteLLM proxy's configuration to an equivalent one (guarantee §12.14).

References of the file (`os.environ/NAME`) stay references, and its secrets become references: no reference is resolved,
and no secret is written.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qsl, urlsplit

import yaml

from gateway.core import names
from gateway.core.config import config_file, exposure, litellm, litellm_draft, loading, setting_sections
from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.litellm import ImportedConfig
from gateway.core.config.settings import SECTIONS

LIKE_A_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|pplx|ghp|glpat|xox[a-z]|AIza|AKIA|eyJ)[-_]?[\w-]{12,}|^(?:Bearer|Basic)\s", re.IGNORECASE
)
NO_SECRET = re.compile(r"_cost|_limit$|_auth_params$|^(?:token_margin|litellm_credential_name|prompt_cache_key)$")
"""Names of figures and labels that look like names of secrets."""
OWN_SECRETS = ("telemetry", "headers")
"""The path in our own sections below which every text is a secret."""
WIDTH = 110


@dataclass(slots=True)
class ConvertedConfig:
    """The gateway's configuration as text, without secrets. `names`: the environment variables that have to hold the
    secrets of the file, each with the path of its secret in the file."""

    text: str
    names: dict[str, str]


@dataclass(slots=True)
class _SecretReferences:
    """Replaces secrets by references, equal secrets by the same reference."""

    taken: set[str]
    names: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def without(self, value: Any, path: tuple[str, ...], label: str, *, secret: bool = False) -> Any:
        """Returns a value with references instead of secrets. `label`: the prefix of the references' names."""
        if isinstance(value, dict):
            return {
                key: self.without(each, (*path, str(key)), label, secret=secret or _names_secret((*path, str(key))))
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.without(each, (*path, str(i)), label, secret=secret) for i, each in enumerate(value)]
        is_one = (secret and isinstance(value, str | int) and value not in (True, False, "")) or _is_secret(value)
        if litellm_draft.is_reference(value) or not is_one:
            return value
        text = str(value)
        if text not in self.known:
            self.known[text] = self._name(path, label)
            self.names[self.known[text]] = ".".join(path)
        return config_file.ENVIRONMENT_REFERENCE + self.known[text]

    def _name(self, path: tuple[str, ...], label: str) -> str:
        wished = litellm.MASTER if path[:3] == ("auth", "keys", litellm.MASTER) else f"{label}_{path[-1]}"
        plain = re.sub(r"\W+", "_", wished, flags=re.ASCII).strip("_").upper() or "SECRET"
        name, number = plain, 2
        while name in self.taken and name != litellm.MASTER:
            name, number = f"{plain}_{number}", number + 1
        self.taken.add(name)
        return name


def _names_secret(path: tuple[str, ...]) -> bool:
    name = path[-1]
    return path == OWN_SECRETS or (names.CREDENTIAL.search(name) is not None and NO_SECRET.search(name) is None)


def _is_secret(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    if LIKE_A_SECRET.search(text):
        return True
    try:
        parts = urlsplit(text)
        return bool(parts.scheme and parts.password) or any(
            names.CREDENTIAL.search(name) for name, _ in parse_qsl(parts.query)
        )
    except ValueError:
        return False


def convert(path: str, environ: Mapping[str, str]) -> ConvertedConfig:
    """Converts a LiteLLM configuration. `environ`: only read to find out whether it has LiteLLM's master key.
    Raises ConfigurationError: the file is missing, or no mapping, or a section of it has a shape that cannot be
    read."""
    raw = config_file.read_file(path)
    moved = litellm.move_in(
        raw,
        {litellm.MASTER: config_file.ENVIRONMENT_REFERENCE + litellm.MASTER} if environ.get(litellm.MASTER) else {},
        path,
        referring=True,
    )
    taken = {*loading.environment_names(), *(each.name for each in loading.CLASSIC_NAMES), *_referred(raw)}
    secrets = _SecretReferences(taken)
    sections = {name: _plain(moved.raw[name]) for name in (*SECTIONS, "model_list") if moved.raw.get(name)}
    unknown = [name for name in moved.raw if name not in (*SECTIONS, "model_list")]
    if unknown:
        raise ConfigurationError(f"{path}: {unknown[0]}: unknown setting; known: {', '.join(SECTIONS)}, model_list")
    written = {name: _without(secrets, name, values) for name, values in sections.items()}
    variables = raw.get("environment_variables")
    return ConvertedConfig(_text(path, moved, written, secrets.names, variables), secrets.names)


def _master(key: str) -> dict[str, Any]:
    return {"key": key, "tenant": "master", "roles": ["user", "admin"]}


def _referred(value: Any) -> Iterator[str]:
    """Yields the names of the environment variables that a file refers to."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _referred(each)
    elif isinstance(value, list):
        for each in value:
            yield from _referred(each)
    elif litellm_draft.is_reference(value):
        yield value.removeprefix(config_file.ENVIRONMENT_REFERENCE)


def _plain(value: Any) -> Any:
    """Returns a value that YAML can write: the master key as a mapping, without `unset` markers."""
    if isinstance(value, setting_sections.ApiKey):
        return _master(value.key.get_secret_value())
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name != "unset"}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _without(secrets: _SecretReferences, name: str, values: Any) -> Any:
    if name == "model_list" and isinstance(values, list):
        return [
            secrets.without(
                each, (f"model_list[{i}]",), str(each.get("model_name")) if isinstance(each, dict) else name
            )
            for i, each in enumerate(values)
        ]
    if name == "auth" and isinstance(values, dict) and isinstance(values.get("keys"), list):
        keys = [
            secrets.without(each, ("auth", "keys", litellm.MASTER if _is_master(each) else str(i)), f"auth_{i}")
            for i, each in enumerate(values["keys"])
        ]
        rest = {key: each for key, each in values.items() if key != "keys"}
        return {**secrets.without(rest, (name,), name), "keys": keys}
    return secrets.without(values, (name,), name)


def _is_master(key: Any) -> bool:
    return isinstance(key, dict) and key == _master(str(key.get("key")))


def _text(
    path: str, moved: ImportedConfig, sections: Mapping[str, Any], names: Mapping[str, str], variables: Any
) -> str:
    """Renders the file: variables to set, sections after comments on their differences, and what has no equivalent."""
    head = [f"Made of {Path(path).name}, a LiteLLM proxy's configuration. Check it: gateway check --config THIS_FILE"]
    head += [f"{name} has to be set: {where} holds it" for name, where in names.items()]
    if isinstance(variables, dict):
        head += [
            f"{name} has to be set: environment_variables holds it" for name in variables if name != litellm.DATABASE
        ]
    if litellm.MASTER in names:
        head.append(
            f"a key has {exposure.MIN_KEY_CHARS} characters or more: choose another where {litellm.MASTER} is shorter"
        )
    if moved.names_database:
        head.append(f"{litellm.DATABASE} must not be set, where it is LiteLLM's: name the gateway's own by storage.url")
    told = [(fate.path, fate.text) for fate in moved.fates if fate.group == "replaced"]
    warned = [tuple(warning.partition(": ")[::2]) for warning in moved.warnings]
    lost = [(fate.path, fate.text) for fate in moved.fates if fate.group == "not supported"]
    parts = [_comments(head)]
    rest: list[tuple[str, str]] = []
    placed: dict[str, list[tuple[str, str]]] = {name: [] for name in sections}
    for where, text in (*told, *warned):
        found = re.search(r"`([a-z_]+)\.", text)
        name = found[1] if found else where.partition(".")[0].partition("[")[0]
        placed.get(name, rest).append((where, text))
    for name, values in sections.items():
        body = yaml.safe_dump({name: values}, sort_keys=False, allow_unicode=True, width=WIDTH)
        parts.append(_comments([f"{where}: {text}" for where, text in placed[name]]) + body)
    if rest or lost:
        parts.append(_comments(["Otherwise:", *(f"{where}: {text}" for where, text in (*rest, *lost))]))
    return "\n".join(parts)


def _comments(lines: list[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def write_from_litellm(path: str, output: str | None, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Converts a file and writes the result; returns the command's exit status. Never overwrites an existing file.
    Raises ConfigurationError: the file cannot be converted, or the result cannot be written."""
    converted = convert(path, environ)
    if output is None:
        out.write(converted.text)
    else:
        try:
            with Path(output).open("x", encoding="utf-8") as file:
                file.write(converted.text)
        except OSError as error:
            raise ConfigurationError(f"{output}: {error.strerror}") from None
        err.write(f"{output} is written\n")
    for name, where in converted.names.items():
        err.write(f"set {name} in the environment: {where} holds it\n")
    return 0
