"""The command `gateway` with ids that are random but alike to a tokenizer: of digits, which it takes three by three.

It stands by itself: a checkout's own Python runs it, with that checkout's gateway. Ids stand in prompts, and with
letters in them the same prompt has a few tokens more or less each time. Those of files are counted: they stand in
messages, of which the storage keeps digests.
"""

import itertools
import os
import random
import time

from gateway.core import ids


class _Time:
    """In the place of `time` where ids are made."""

    @staticmethod
    def time_ns() -> int:
        """Nanoseconds whose milliseconds, in hex, are those that it is now, in decimal."""
        return int(str(time.time_ns() // 1_000_000)[-12:], 16) * 1_000_000


class _Os:
    """In the place of `os`."""

    register_at_fork = staticmethod(os.register_at_fork)

    @staticmethod
    def urandom(size: int) -> bytes:
        """Bytes whose hex has digits alone; those of one id begin with its number, so that ids sort as they came."""
        made = (f"{next(_ids):08d}{random.randrange(10**12):012d}" for _ in range(-(-size // 10)))
        return bytes.fromhex("".join(made))[:size]


_random_id = ids.new_id
_ids = itertools.count()
_files = itertools.count(10**31)


def _new_id(prefix: str) -> str:
    return f"{prefix}{next(_files)}" if prefix == ids.FILE else _random_id(prefix)


vars(ids).update(time=_Time, os=_Os, new_id=_new_id)

if __name__ == "__main__":
    from gateway.cli import main  # all that makes ids takes them from above

    raise SystemExit(main())
