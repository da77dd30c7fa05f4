"""Ids are unguessable, never the same twice, and stand in an index in the order in which they were made."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

from gateway.core import ids
from gateway.core.ids import IDS_A_READ, new_id


def test_an_id_begins_with_the_time_and_ends_with_random_bits() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id("req_") for _ in range(3 * IDS_A_READ)]
    after = time.time_ns() // 1_000_000
    assert {len(each) for each in made} == {len("req_") + 32}
    assert all(before <= int(each[4:16], 16) <= after for each in made)
    assert len({each[16:] for each in made}) == len(made)


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [each for part in threads.map(lambda _: [new_id("") for _ in range(2000)], range(8)) for each in part]
    assert len({each[12:] for each in made}) == len(made)


def test_a_forked_process_never_makes_the_ids_of_its_parent() -> None:
    new_id("")  # some random bits are left over in memory
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(new_id("") for _ in range(10)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(reading, 4096).decode()
    os.close(reading)
    os.close(writing)
    theirs = {text[at + 12 : at + 32] for at in range(0, len(text), 32)}
    assert len(theirs) == 10
    assert not theirs & {new_id("")[12:] for _ in range(IDS_A_READ)}
    assert ids.RANDOM_BYTES == 10
