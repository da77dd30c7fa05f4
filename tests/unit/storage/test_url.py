"""`storage.url` is never shown with its password (guarantee §7)."""

import pytest

from gateway.storage.database.sqlite import parse_url


@pytest.mark.parametrize(
    "text", ["postgresql://user:s3cret@host:port/db", "mysql://u:s3cret@h/d", "sqlite://u:s3cret@foo.db"]
)
def test_s7_an_address_that_is_none_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"storage\.url") as refused:
        parse_url(text)
    assert "s3cret" not in str(refused.value)
