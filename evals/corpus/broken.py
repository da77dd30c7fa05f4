"""Files as they arrive broken: cut off, with bytes changed, and archives whose members are broken in one piece."""

import io
import random
import zipfile
from collections.abc import Callable

MAX_MEMBER_BYTES = 4 * 2**20


def broken(raw: bytes, seed: int) -> bytes:
    """Another file each time, the same for the same seed."""
    rng = random.Random(seed)
    if raw[:2] == b"PK" and rng.random() < 0.6:
        return _member_broken(raw, rng)
    return _bytes_broken(raw, rng)


def _bytes_broken(raw: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        raw = rng.choice(WAYS)(raw, rng)
    return raw


def _member_broken(raw: bytes, rng: random.Random) -> bytes:
    """The archive is whole, so that what reads it gets as far as the member."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        infos = [each for each in archive.infolist() if each.file_size < MAX_MEMBER_BYTES]
        chosen = rng.choice(infos)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as target:
            for info in infos:
                content = archive.read(info)
                kind = zipfile.ZIP_STORED if info.filename == "mimetype" else zipfile.ZIP_DEFLATED
                target.writestr(
                    zipfile.ZipInfo(info.filename),
                    _bytes_broken(content, rng) if info is chosen else content,
                    kind,
                )
    return out.getvalue()


def _cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _flipped(raw: bytes, rng: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice((1, 3, 20, 200))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _without(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    return raw[:start] + raw[start + rng.choice((1, 2, 40, 4000)) :]


def _with_rubbish(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    return raw[:start] + rng.randbytes(rng.choice((1, 4, 300))) + raw[start:]


def _repeated(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    end = start + rng.choice((10, 1000, 20_000))
    return raw[:end] + raw[start:end] * rng.choice((1, 3)) + raw[end:]


def _zeroed(raw: bytes, rng: random.Random) -> bytes:
    start, size = rng.randrange(len(raw) + 1), rng.choice((4, 64, 2000))
    return raw[:start] + bytes(len(raw[start : start + size])) + raw[start + size :]


def _numbers(raw: bytes, rng: random.Random) -> bytes:
    """A figure in the text becomes absurd: counts, offsets, references."""
    digits = [i for i in range(len(raw)) if 48 <= raw[i] <= 57] if len(raw) < 200_000 else []
    if not digits:
        return _flipped(raw, rng)
    at = rng.choice(digits)
    return raw[:at] + rng.choice((b"-1", b"99999999999", b"4294967296", b"0", b"1e999")) + raw[at + 1 :]


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut,
    _flipped,
    _without,
    _with_rubbish,
    _repeated,
    _zeroed,
    _numbers,
)
