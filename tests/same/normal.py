"""What two gateways may differ in, taken out: random ids are named by the order in which they appear, times are not
compared, nor where anything listens."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

ID = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{32}|(?<=key_)[0-9a-f]{40}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])"
)
NAMED = re.compile(r"ID-c[\d-]+")
KEY = re.compile(r"sk-gw-[\w-]+|(?<=\"hint\":\")[\w-]{4}")
SEALED = re.compile(r"gwc1?[._][\w=.-]{40,}|(?<=\"encrypted_content\":)( ?\")[\w+/=.:-]{60,}")
TIMES = (
    (re.compile(r'"timings_ms":\s*\{[^{}]*\}'), '"timings_ms":{}'),
    (re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:?00)?"), "TIME"),
    (re.compile(r"(?<![\d.\w])1[789]\d{8}(\d{3}|\d{6}|\d{9})?(\.\d+)?(?![\d.\w])"), "0"),
    (re.compile(r'"(duration_ms|latency_ms|first_byte_ms|total_ms|at_ms|seconds|elapsed_ms)":\s*[\d.]+'), r'"\1":0'),
)
PIECES = re.compile(r'data: \{"object": ?"conversation.replay.delta".*\n\n')
"""Of an answer within a replay, cut by the time at which they came."""
DROPPED = {"date", "content-length", "host", "transfer-encoding", "connection", "server"}
UNSTORED = {"alembic_version", "secrets", "processes", "schema_revisions", "sqlite_sequence", "quota_shares"}
"""Tables of a process, or of a storage."""
RANDOM = {
    ("cached_contents", "digest"),
    ("claims", "body"),
    ("admin_events", "digest"),
    ("admin_events", "previous_digest"),
    ("api_keys", "digest"),
    ("api_keys", "hint"),
}
"""Columns that are made of random ids, or of times."""


class Names:
    """Names for the random ids of one gateway, each with the case in which it appeared first."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._case = ""
        self._number = 0
        self.places: dict[str, str] = {}
        """What is to be named otherwise, such as addresses."""

    def begin(self, case: str) -> None:
        """From now on, new ids are this case's."""
        self._case, self._number = case, 0

    def said(self, text: str) -> str:
        """The text with names for ids, without times."""
        for found, named in self.places.items():
            text = text.replace(found, named)
        text = SEALED.sub(r"\1SEALED", PIECES.sub("", text))
        for pattern, instead in TIMES:
            text = pattern.sub(instead, text)
        return ID.sub(self._named, KEY.sub("sk-gw-KEY", text))

    def unnamed(self, text: str) -> str:
        """The same, ids that are not known without a name of their own."""
        for found, named in self.places.items():
            text = text.replace(found, named)
        return ID.sub(lambda found: self._known.get(found[0], "ID?"), text)

    def name(self, an_id: str, name: str) -> None:
        """Names an id that nobody was told of."""
        for found in ID.findall(an_id):
            self._known.setdefault(found, name)

    def _named(self, found: re.Match[str]) -> str:
        if found[0] not in self._known:
            self._number += 1
            self._known[found[0]] = f"ID-{self._case}-{self._number}"
        return self._known[found[0]]


def without_ids(text: str) -> str:
    """A text without what is random in it, for a script to depend on."""
    return ID.sub("", text)


def told(found: dict[str, str], names: Names) -> dict[str, str]:
    """Headers in the order of their names."""
    return {name: names.said(found[name]) for name in sorted(found) if name not in DROPPED}


def rows(path: Path, names: Names) -> dict[str, list[str]]:
    """The rows of all tables of an SQLite file, sorted. An id that nobody was told of is named by the first that is
    known in the row that is its own, and counted."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        found = {table: [*_rows(database, table)] for table in _tables(database)}
    for table, lines in found.items():
        counts = Counter[str]()
        for line in lines:
            own = next(iter(json.loads(line).values()), None)
            if isinstance(own, str) and "ID?" in names.unnamed(own):
                known = NAMED.search(names.unnamed(line))
                whose = f"{table} {known[0] if known else ''}".strip()
                counts[whose] += 1
                names.name(own, f"ID<{whose} {counts[whose]}>")
    return {table: sorted(_ordered(names.unnamed(line)) for line in lines) for table, lines in found.items()}


def _ordered(line: str) -> str:
    """A row whose list of what has left the window is by the names of messages, not by their ids."""
    row = json.loads(line)
    left = row["body"].get("left") if isinstance(row.get("body"), dict) else None
    if not left:
        return line
    row["body"]["left"] = sorted(map(str, left))
    return json.dumps(row, ensure_ascii=False)


def _tables(database: sqlite3.Connection) -> Iterator[str]:
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        if name not in UNSTORED:
            yield name


def _rows(database: sqlite3.Connection, table: str) -> Iterator[str]:
    order = "rowid" if _has_rowid(database, table) else "1"
    cursor = database.execute(f'SELECT * FROM "{table}" ORDER BY {order}')
    columns = [each[0] for each in cursor.description]
    for row in cursor:
        named = {name: _value(value) for name, value in zip(columns, row, strict=True) if (table, name) not in RANDOM}
        if named.get("action") == "storage.migrated":
            continue
        if named.get("purpose") == "summarizer":
            named.pop("number", None)  # they are asked at once
        line = json.dumps(named, ensure_ascii=False)
        for pattern, instead in TIMES:
            line = pattern.sub(instead, line)
        yield line


def _has_rowid(database: sqlite3.Connection, table: str) -> bool:
    try:
        database.execute(f'SELECT rowid FROM "{table}" LIMIT 0')
    except sqlite3.OperationalError:
        return False
    return True


def _value(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.loads(value)
        except ValueError:
            return value
    if isinstance(value, bytes):
        try:
            return _value(value.decode())
        except UnicodeDecodeError:
            return value.hex()
    return value


def differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Each place where two values differ, with both."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old == new and [*old] != [*new]:
            yield f"{path or '.'}: the order of names: {[*old]} | {[*new]}"
        for name in [*old, *(each for each in new if each not in old)]:
            yield from differing(old.get(name, _NOTHING), new.get(name, _NOTHING), f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        for number, (one, other) in enumerate(zip_longest(old, new, fillvalue=_NOTHING)):
            yield from differing(one, other, f"{path}[{number}]")
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        yield f"{path or '.'}, from character {at} of {len(old)}, {len(new)}: {_piece(old, at)} | {_piece(new, at)}"
    elif old != new or type(old) is not type(new):
        yield f"{path or '.'}: {_short(old)} | {_short(new)}"


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


_NOTHING = _Nothing()


def _piece(text: str, at: int) -> str:
    return repr(text[max(0, at - 30) : at + 60])


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) < 160 else f"{said[:157]}…"


def parsed(text: str) -> Any:
    """JSON as a value, streams as their events, anything else as it is."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "\n\n" not in text:
        return text
    return [_event(each) for each in text.split("\n\n")]


def _event(text: str) -> Any:
    name, _, data = text.partition("data: ")
    try:
        return {"event": name, "data": json.loads(data)}
    except ValueError:
        return text
