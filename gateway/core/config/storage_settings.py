"""Where conversations and bills are kept, and under which keys."""

import base64
import re

from pydantic import Field, SecretStr, field_validator

from gateway.core.config.settings_fields import Seconds, SettingsSection

KEY_BYTES = 32
NO_KEY = f"must be {KEY_BYTES} random bytes in base64 or as {2 * KEY_BYTES} hex digits: `openssl rand -base64 32`"


class StorageSettings(SettingsSection):
    """Where conversations and bills are kept."""

    url: str = Field(
        "sqlite:///context-gateway.db",
        description="SQLite file or `postgresql+asyncpg://` URL (`DATABASE_URL`).",
    )
    pool_size: int = Field(10, ge=1, le=500, description="Most connections to PostgreSQL.")
    timeout: Seconds = Field(5.0, description="Seconds to wait for a connection or a lock before a 503.")
    auto_migrate: bool = Field(True, description="Bring the schema up to date at start.")
    migration_timeout: Seconds = Field(
        600.0, description="Seconds that a migration waits for another process's, or for tables in use."
    )
    encryption_key: SecretStr | None = Field(
        None,
        description="Key under which stored content is encrypted: 32 random bytes in base64 or hex; null: none is.",
    )
    encryption_keys_before: tuple[SecretStr, ...] = Field(
        (), description="Further keys that stored content may be under: it is read with them, never written."
    )

    @field_validator("encryption_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        if not key:
            return None
        key_bytes(key)
        return key

    @field_validator("encryption_keys_before")
    @classmethod
    def _are_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in keys:
            key_bytes(key)
        return keys


def key_bytes(key: SecretStr) -> bytes:
    """The bytes of an encryption key.

    Raises:
        ValueError: it is not `KEY_BYTES` long.
    """
    text = key.get_secret_value().strip()
    if re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        return bytes.fromhex(text)
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:  # no base64
        raise ValueError(NO_KEY) from None
    if len(found) != KEY_BYTES:
        raise ValueError(NO_KEY)
    return found
