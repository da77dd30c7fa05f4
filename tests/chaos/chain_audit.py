"""Whether digests, links and what answers leave for recognition agree with the messages that are stored (ADR 8)."""

import json
from collections.abc import Sequence
from typing import Any

from gateway.core.types.chain import (
    CHAIN_START,
    ChainDigest,
    ChainKey,
    ChainKeys,
    call_digest,
    call_ids,
    extended,
    is_step,
)
from tests.chaos.talks import Json

SECRET = "SELECT value FROM secrets WHERE name = 'keyed-hash'"
LINKS = "SELECT * FROM message_links WHERE conversation_id IN ({})"
CHAINS = "SELECT * FROM chains WHERE conversation_id IN ({})"


def marks_of_rows(stored: Sequence[Json]) -> dict[str, tuple[ChainDigest, ChainDigest]]:
    """The marks before and after each message, made anew from what is stored; `stored` in order of sequence numbers."""
    found: dict[str, tuple[ChainDigest, ChainDigest]] = {}
    for row in stored:
        before = found[row["parent_id"]][1] if row["parent_id"] is not None else CHAIN_START
        body, reworded = json.loads(row["body"]), row["rendered"] is not None
        found[row["id"]] = before, extended(before, body, status=row["status"], reworded=reworded)
    return found


def check_digests(stored: Sequence[Json], links: Sequence[Json]) -> None:
    """Raises AssertionError: a digest is not that of the chain which is stored, or a link is missing or leads
    elsewhere."""
    marks, by_id = marks_of_rows(stored), {row["id"]: row for row in stored}
    linked = {bytes(link["digest"]): link["message_id"] for link in links}
    for row in stored:
        before, mark = marks[row["id"]]
        kept = (bytes(row["path_digest"] or b""), bytes(row["said_digest"] or b""))
        assert kept == (mark.path, mark.said), f"digests of {row['body']}"
        assert mark.plain or not row["plain"], f"not as plain as it says: {row['body']}"
        for digest in {mark.path, mark.said} - {before.path, before.said}:
            assert digest in linked, f"no link leads to {row['body']}"
            there = marks[linked[digest]][1] if linked[digest] in marks else None
            assert there is not None, f"a link leads to a message that is not there: {linked[digest]}"
            assert digest in (there.path, there.said), f"a link to {row['body']} leads to another message"
    astray = [link for link in links if link["message_id"] not in by_id]
    assert not astray, f"links to messages that are not there: {astray}"


def check_recognised(stored: Sequence[Json], chains: Sequence[Json], secret: bytes, tenant: str) -> None:
    """Raises AssertionError: an answer, as its client sends it, would not be recognised."""
    kept = {ChainKey(bytes(row["digest"]), bytes(row["calls"])) for row in chains}
    marks = marks_of_rows(stored)
    for row in stored:
        if row["choice"] is not None:
            key = _key(json.loads(row["body"]), *marks[row["id"]], secret, tenant)
            assert key in kept, f"nothing is left of {row['body']}"


def _key(message: dict[str, Any], before: ChainDigest, mark: ChainDigest, secret: bytes, tenant: str) -> ChainKey:
    if is_step(message):
        return ChainKeys(secret, tenant).key(call_digest(before, message), call_ids(message))
    return ChainKeys(secret, tenant).key(mark.said)
