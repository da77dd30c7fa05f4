"""`storage.url` is never shown with its password (guarantee §7)."""

from pathlib import Path

import pytest

from gateway.storage.database.sqlite import SqliteTransactions, parse_url


@pytest.mark.parametrize(
    "text", ["postgresql://user:s3cret@host:port/db", "mysql://u:s3cret@h/d", "sqlite://u:s3cret@foo.db"]
)
def test_s7_an_address_that_is_none_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"storage\.url") as refused:
        parse_url(text)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("below", ["x.db", "deeper/x.db"])
def test_a_file_where_the_database_wants_a_folder_is_told(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match=r"storage\.url: .*x\.db: its folder is, or lies below, a file"):
        SqliteTransactions(parse_url(f"sqlite:///{tmp_path}/taken/{below}"), 1.0)
