"""Seals of stored content, and the settings that name keys (guarantee §12.11)."""

import base64

import pytest
from pydantic import ValidationError

from gateway.core.config.setting_sections import StorageSettings, key_bytes
from gateway.core.errors import ContentUnreadable
from gateway.storage.encryption.columns import PREFIX, KeyVault, open_vault

KEY, OTHER = bytes(range(32)), b"o" * 32


def settings(key: str | None, *before: str) -> StorageSettings:
    return StorageSettings.model_validate({"encryption_key": key, "encryption_keys_before": before})


@pytest.mark.parametrize(
    "text", [KEY.hex(), KEY.hex().upper(), base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode()[:-1]]
)
def test_a_key_is_written_in_hex_or_base64(text: str) -> None:
    key = settings(text).encryption_key
    assert key is not None
    assert key_bytes(key) == KEY
    assert text not in repr(settings(text))


@pytest.mark.parametrize("text", ["secret", KEY.hex()[:-2], "ä" * 32, base64.b64encode(KEY[:-1]).decode()])
def test_what_is_no_key_is_refused_without_being_told(text: str) -> None:
    for keys in ((text,), (None, text)):
        with pytest.raises(ValidationError, match="must be 32 random bytes") as refused:
            settings(*keys)
        assert text not in str(refused.value)


def test_without_a_key_there_is_no_vault() -> None:
    assert open_vault(settings(None)) is None
    assert open_vault(settings("")) is None


def test_s12_11_a_text_opens_in_its_column_and_row_alone() -> None:
    vault = KeyVault(KEY)
    sealed = vault.seal("said", "messages.body", "msg_1")
    assert sealed.startswith(PREFIX)
    assert vault.seal("said", "messages.body", "msg_1") != sealed
    assert vault.open(sealed, "messages.body", "msg_1") == "said"
    for column, row in (("messages.body", "msg_2"), ("frames.body", "msg_1"), ("messages.body", None)):
        with pytest.raises(ContentUnreadable):
            vault.open(sealed, column, row)


def test_s12_11_whatever_is_changed_of_a_seal_is_refused() -> None:
    vault = KeyVault(KEY)
    sealed = vault.seal("said", "c", "r")
    for at in range(len(PREFIX), len(sealed)):
        # "z" for these: with "A" for "B" alone the last two bits change, which in the last character say nothing
        changed = sealed[:at] + ("A" if sealed[at] not in "ABCD" else "z") + sealed[at + 1 :]
        with pytest.raises(ContentUnreadable):
            vault.open(changed, "c", "r")
    with pytest.raises(ContentUnreadable):
        vault.open(sealed[:-4], "c", "r")


def test_a_key_of_before_reads_and_does_not_write() -> None:
    sealed = KeyVault(OTHER).seal("said", "c", "r")
    rotated, reading = KeyVault(KEY, [OTHER]), KeyVault(None, [OTHER])
    assert rotated.open(sealed, "c", "r") == reading.open(sealed, "c", "r") == "said"
    assert rotated.seal("said", "c", "r").startswith(rotated.head)
    assert reading.seal("said", "c", "r") == "said"
    with pytest.raises(ContentUnreadable, match="not configured"):
        KeyVault(KEY).open(sealed, "c", "r")


def test_a_cached_value_that_does_not_open_is_unknown() -> None:
    vault = KeyVault(KEY)
    sealed = vault.seal_bytes(b"value", "key")
    assert vault.open_bytes(sealed, "key") == b"value"
    for value, name in ((sealed, "other"), (b"plain", "key"), (sealed[:-1], "key"), (b"", "key")):
        assert vault.open_bytes(value, name) is None
    assert KeyVault(OTHER).open_bytes(sealed, "key") is None


def test_words_of_two_tenants_have_nothing_in_common() -> None:
    vault = KeyVault(KEY)
    first, second = vault.word("red lamp", "a"), vault.word("red lamp", "b")
    assert first != second
    assert first.count(" ") == second.count(" ") == 1
    assert "lamp" not in first
    assert vault.words("red lamp", "a") == (first, "red lamp")
