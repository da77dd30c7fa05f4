"""`python -m tests.same --old CHECKOUT [--new CHECKOUT]`: what differs between two versions of the gateway."""

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from tests.same.cases import SCENES, play, scene
from tests.same.normal import differing, parsed, rows
from tests.same.provider import Provider
from tests.same.side import Entry, Side
from tests.support.gateway_process import REPOSITORY

MAX_SHOWN = 12
"""Differing places that are printed of one request, and rows of one table."""


def main() -> int:
    """Plays cases until so many requests were sent; 1 where anything differs."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the gateways would outlive it
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="same-"))
    with Provider() as provider, ExitStack() as stack:
        checkouts = {"old": options.old, "new": options.new}
        sides = [Side(path.resolve(), directory / name, provider) for name, path in checkouts.items()]
        for side in sides:
            stack.enter_context(side)
        requests, cases = _play(options, *sides)
        told = re.compile("|".join(cases) or r"\Z.")
        stopped = [side.stop() for side in sides]
        found = [
            _compare_rows(world, told, *(rows(at[world], side.names) for side, at in zip(sides, stopped, strict=True)))
            for world in stopped[0]
        ]
    if options.keep:
        print(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    seconds = time.monotonic() - started
    print(f"{requests} requests, {seconds:.0f} s: {len(cases)} cases and {sum(found)} rows of others differ")
    return 1 if cases or sum(found) else 0


def _play(options: argparse.Namespace, old: Side, new: Side) -> tuple[int, list[str]]:
    """Plays cases on both sides and prints what differs; how many requests there were, and how ids of the cases that
    differ begin."""
    requests, failed = 0, list[str]()
    number = options.case or 1
    while requests < options.count and len(failed) < options.most:
        name = scene(options.seed, number, options.only)
        for side in (old, new):
            play(side, options.seed, number, name)
        requests += len(old.entries)
        if options.verbose:
            print(f"\n=== {number} {name}", *map(_told, new.entries), sep="\n")
        if found := [*_differences(old.entries, new.entries)]:
            failed.append(f"ID-c{options.seed}-{number}-")
            only = f" --only {options.only}" if options.only else ""
            print(f"\n=== {name}: --seed {options.seed} --case {number}{only}")
            print("\n".join(found[: 4 * MAX_SHOWN]), flush=True)
        number += 1
        if options.case is not None:
            break
    return requests, failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="a checkout with its .venv")
    parser.add_argument("--new", type=Path, default=REPOSITORY, help="the other one; default: this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000, help="requests to send, about (1000)")
    parser.add_argument("--case", type=int, help="only the case of that number")
    parser.add_argument("--only", choices=SCENES, help="only cases of that kind")
    parser.add_argument("--most", type=int, default=5, help="differing cases after which to stop (5)")
    parser.add_argument("--verbose", action="store_true", help="print what is asked and answered")
    parser.add_argument("--keep", action="store_true", help="keep configurations, logs and storages")
    return parser.parse_args()


def _told(entry: Entry) -> str:
    sent = "".join(f"\n    {each['path']} {each['body']}"[:2000] for each in [*entry.internal, *entry.forwarded])
    return f"  {entry.request[:1000]}{sent}\n    {entry.answer['status']} {str(entry.answer['body'])[:600]}"


def _differences(old: list[Entry], new: list[Entry]) -> Iterator[str]:
    for number, (one, other) in enumerate(zip_longest(old, new)):
        if one == other:
            continue
        said = (one or other).request
        yield f"--- request {number}: {said[:300]}{'…' if len(said) > 300 else ''}"
        if one is None or other is None:
            yield f"only the {'new' if one is None else 'old'} one had it sent"
            continue
        yield from [f"  {line}" for line in _of_entry(one, other)][:MAX_SHOWN]


def _of_entry(old: Entry, new: Entry) -> Iterator[str]:
    yield from differing(old.request, new.request, "request")
    for name in ("forwarded", "internal"):
        for number, (one, other) in enumerate(zip_longest(getattr(old, name), getattr(new, name))):
            if one is None or other is None:
                whose = "new" if one is None else "old"
                yield f"{name}[{number}]: only the {whose} one asked: {str(one or other)[:200]}"
            else:
                yield from _of_message(one, other, f"{name}[{number}]")
    yield from _of_message(old.answer, new.answer, "answer")
    yield from differing(old.violations, new.violations, "violations")


def _of_message(old: dict[str, object], new: dict[str, object], path: str) -> Iterator[str]:
    """Bodies as JSON, so that the places are seen; where they are equal as that, by character."""
    for name in old:
        one, other = old[name], new[name]
        if name == "body" and one != other:
            found = [*differing(parsed(str(one)), parsed(str(other)), path)]
            yield from found or differing(one, other, f"{path} (as text)")
        else:
            yield from differing(one, other, f"{path} {name}")


def _compare_rows(world: str, told: re.Pattern[str], old: dict[str, list[str]], new: dict[str, list[str]]) -> int:
    """Prints rows that only one side has; how many there are. Those of cases that are `told` differ for it."""
    count = 0
    for table in sorted({*old, *new}):
        one, other = ([row for row in each.get(table, []) if not told.search(row)] for each in (old, new))
        if added := {*_columns(one)} ^ {*_columns(other)} if one and other else set():
            print(f"\n=== columns of {table} ({world}) that only one storage has: {', '.join(sorted(added))}")
            one, other = ([_less(row, added) for row in each] for each in (one, other))
        gone, come = _without(one, other), _without(other, one)
        count += max(len(gone), len(come), len(added))
        if gone or come:
            print(f"\n=== rows of {table} ({world}): {len(gone)} only in the old storage, {len(come)} only in the new")
        for left, right in [*zip_longest(gone, come)][:MAX_SHOWN]:
            if left is None or right is None:
                print(f"  only {'new' if left is None else 'old'}: {str(left or right)[:600]}")
            else:
                print(
                    f"  {left[:200]}…\n"
                    + "\n".join(f"    {each}" for each in [*differing(parsed(left), parsed(right))][:MAX_SHOWN])
                )
    return count


def _columns(lines: list[str]) -> list[str]:
    return list(json.loads(lines[0]))


def _less(line: str, columns: set[str]) -> str:
    return json.dumps({name: value for name, value in json.loads(line).items() if name not in columns})


def _without(some: list[str], others: list[str]) -> list[str]:
    return sorted((Counter(some) - Counter(others)).elements())


if __name__ == "__main__":
    sys.exit(main())
