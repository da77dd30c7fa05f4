"""Who could spend an operator's keys, why a server does not start, which address it must not call, and whether it
has a web UI (guarantee §8, §13.2)."""

import ipaddress
from urllib.parse import urlsplit

from gateway.core import printing
from gateway.core.config.settings import Settings

MIN_KEY_CHARS = 8
"""Minimum characters of a key of ours."""


def operators_keys(settings: Settings) -> str:
    """Describes the operator's keys that anyone who reaches the port may spend; empty if there are none, or if only
    holders of the gateway's own keys are served."""
    if settings.auth.wants_keys or not settings.has_operator_key():
        return ""
    names = [entry.model_name for entry in settings.model_list if entry.litellm_params.has_credentials]
    found = ["upstream.api_key (OPENAI_API_KEY)"] if settings.upstream.api_key else []
    if names:
        found.append(f"model_list ({printing.in_short(names, 3)})")
    return " and ".join(found)


def refusal(settings: Settings) -> str | None:
    """Returns why the server does not start, or None: several workers would share a SQLite file, or it is set to listen
    beyond loopback, where anyone could spend an operator's key. The text ends with what to set."""
    workers = settings.server.workers
    if workers > 1 and settings.storage.url.startswith("sqlite"):
        text = "one process writes to a SQLite file; set storage.url to a PostgreSQL database"
        return f"server.workers: {workers}: {text}"
    keys = operators_keys(settings)
    if not keys or settings.auth.mode == "open" or is_loopback(settings.server.host):
        return None
    return (
        f"server.host: {settings.server.host!r} is beyond loopback, and anyone who reaches it could spend the "
        f"operator's key of {keys}. Set auth.keys (GATEWAY_AUTH_KEYS), auth.mode: keys (GATEWAY_AUTH_MODE=keys), or "
        "auth.mode: open (GATEWAY_AUTH_MODE=open)."
    )


def is_loopback(host: str) -> bool:
    """Returns whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def has_page(settings: Settings) -> bool:
    """Returns whether the web UI `/ui` may be opened (guarantee §13.2): with keys for its login, else on loopback."""
    if settings.server.ui == "off":
        return False
    return settings.auth.wants_keys or is_loopback(settings.server.host.strip("[]"))


def weak_keys(settings: Settings) -> list[str]:
    """Returns a warning if only a key that is easily guessed guards access."""
    if is_loopback(settings.server.host) or all(len(each.key) >= MIN_KEY_CHARS for each in settings.auth.keys):
        return []
    text = f"is shorter than {MIN_KEY_CHARS} characters, and {settings.server.host} is reached from beyond this machine"
    return [f"general_settings.master_key {text}: set a longer one"]


def is_own(base: str, settings: Settings) -> bool:
    """Returns whether an address is the one that the gateway listens on: it would call itself without end."""
    try:
        parts = urlsplit(base)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    host, own = parts.hostname or "", settings.server.host.strip("[]")
    everywhere = own in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
    near = is_loopback(host) or host in ("0.0.0.0", "::")  # noqa: S104
    return port == settings.server.port and (host == own or (near and (everywhere or is_loopback(own))))
