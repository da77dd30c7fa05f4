"""§14.4: where a gateway was killed while it read a document, nothing of that stays on the disk."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from gateway.documents.process import FOLDER_PREFIX, YOUNG_SECONDS, clear_left, own_folder

LONG_AGO = time.time() - YOUNG_SECONDS - 1


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(folders: Path, name: str, *, when: float = LONG_AGO) -> Path:
    folder = folders / name
    (folder / "pictures").mkdir(parents=True)
    (folder / "pictures" / "page.png").write_bytes(b"what a user said")
    os.utime(folder, (when, when))
    return folder


def test_s14_4_what_a_killed_gateway_left_goes(folders: Path) -> None:
    gone = left(folders, f"{FOLDER_PREFIX}one")
    young, other = left(folders, f"{FOLDER_PREFIX}two", when=time.time()), left(folders, "somebody-elses")
    linked = folders / f"{FOLDER_PREFIX}link"
    linked.symlink_to(other)
    assert clear_left() == 1
    assert not gone.exists()
    assert young.exists()
    assert (other / "pictures" / "page.png").exists()


async def test_s14_4_a_folder_that_is_used_stays_until_its_end(folders: Path) -> None:
    async with own_folder() as folder:
        os.utime(folder, (LONG_AGO, LONG_AGO))
        assert clear_left() == 0
        assert os.listdir(folders) == [os.path.basename(folder)]
    assert os.listdir(folders) == []
