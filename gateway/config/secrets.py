"""Secrets that stand outside the configuration: in files, or in a vault that a package of its own asks.

`file:///run/secrets/NAME` is the content of that file. `SCHEME://…` is what the entry point SCHEME of the group
`gateway.secrets` returns for it: a callable that takes the whole reference and returns the secret, asked once at start.
"""

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gateway.base.names import CREDENTIAL
from gateway.config.auth_settings import ApiKey
from gateway.config.files import ConfigurationError

GROUP = "gateway.secrets"
FILE = "file://"
MAX_BYTES = 64 * 1024
REFERENCE = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
ADDRESSES = frozenset(
    ("http", "https", "redis", "rediss", "unix", "postgres", "postgresql", "postgresql+asyncpg", "sqlite"),
)
"""Schemes that settings themselves have; no package takes them."""


def look_up(value: Any, origin: str, where: str = "") -> Any:
    """A value with secrets in the place of each reference in it.

    Args:
        origin: what the configuration was read from.
        where: the path of the value in it.

    Raises:
        ConfigurationError: a secret cannot be read, or nobody reads such; the message holds none of it.
    """
    if isinstance(value, dict):
        return {name: look_up(each, origin, f"{where}.{name}".lstrip(".")) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [look_up(each, origin, f"{where}[{number}]") for number, each in enumerate(value)]
    if isinstance(value, ApiKey):  # LiteLLM's master key, which is no text any more
        key = look_up(value.key.get_secret_value(), origin, f"{where}.key")
        return value.model_copy(update={"key": SecretStr(key)})
    if not isinstance(value, str) or (found := REFERENCE.match(value)) is None or found[1] in ADDRESSES:
        return value
    try:
        return _of_file(value) if value.startswith(FILE) else _of_package(value, found[1], where)
    except _Unreadable as fault:
        raise ConfigurationError(f"{origin}: {where}: {fault}") from None


class _Unreadable(Exception):
    """A secret is not to be had."""


def _of_file(reference: str) -> str:
    path = Path(reference.removeprefix(FILE))
    if not path.is_absolute():
        raise _Unreadable("a secret's file is named as file:///PATH, from the root")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except OSError as fault:
        raise _Unreadable(f"{path}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise _Unreadable(f"{path}: not UTF-8") from None
    if not text or len(content) > MAX_BYTES:
        raise _Unreadable(f"{path}: {'holds nothing' if not text else f'more than {MAX_BYTES} bytes'}")
    return text


def _of_package(reference: str, scheme: str, where: str) -> str:
    known = {found.name: found for found in entry_points(group=GROUP)}
    if scheme not in known:
        if CREDENTIAL.search(where.rpartition(".")[2]) is None:
            return reference  # some other text
        names = ", ".join(sorted(known)) or "none"
        raise _Unreadable(f"no package is installed that reads {scheme}:// (entry points {GROUP}; there is: {names})")
    try:
        found = known[scheme].load()(reference)
    except Exception as fault:  # noqa: BLE001 - code of others may fail in any way
        raise _Unreadable(f"{scheme}:// failed: {type(fault).__name__}: {fault}") from None
    if not isinstance(found, str) or not found:
        raise _Unreadable(f"{scheme}:// gave no text")
    return found
