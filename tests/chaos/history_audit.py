"""Whether the stored history is what clients were told: every acknowledged turn once, whole, in its place, billed."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tests.chaos.audit import WHOLE, broken_rules, rows
from tests.chaos.chain_audit import CHAINS, LINKS, SECRET, check_digests, check_recognised
from tests.chaos.talks import Acknowledged, Json, Talk
from tests.support.process import wait_until

MESSAGES = WHOLE + " WHERE m.conversation_id IN ({}) ORDER BY m.sequence_number"
BILLS = """SELECT l.request_id, l.conversation_id, l.tenant, l.status, l.response_metadata, c.body AS completion
    FROM ledger l LEFT JOIN completions c ON c.request_id = l.request_id WHERE l.conversation_id IN ({})"""
FAILED = "SELECT request_id, error_code, response_metadata FROM ledger WHERE status = 'failed'"
BUSY = """SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"""


class HistoryAudit:
    """Looks at the conversations that have had a request since it looked last."""

    def __init__(self, storage_url: str) -> None:
        self._storage_url = storage_url
        self._seen: dict[str, int] = {}

    def check(self, talks: Sequence[Talk], everything: bool = False) -> None:
        """Raises AssertionError: names the rule that is broken, and what breaks it."""
        _wait_for_the_killed(self._storage_url)
        broken = broken_rules(self._storage_url)
        assert not broken, f"rules that the database breaks: {broken}"
        _check_killed(talks, rows(self._storage_url, FAILED))
        named = [talk for talk in talks if talk.conversation_id]
        touched = [t for t in named if everything or t.using or self._seen.get(t.session, 0) != len(t.done)]
        names = [str(talk.conversation_id) for talk in touched]
        stored, bills, links, chains = (self._by_conversation(sql, names) for sql in (MESSAGES, BILLS, LINKS, CHAINS))
        for talk, name in zip(touched, names, strict=True):
            _check_talk(talk, stored[name], bills[name])
            check_digests(stored[name], links[name])
            if not talk.shifts:
                check_recognised(stored[name], chains[name], self._secret(), bills[name][0]["tenant"])
            self._seen[talk.session] = len(talk.done)

    def _secret(self) -> bytes:
        return bytes(rows(self._storage_url, SECRET)[0]["value"])

    def _by_conversation(self, sql: str, conversations: list[str]) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = defaultdict(list)
        if conversations:
            names = ", ".join(f"'{each}'" for each in conversations)
            for row in rows(self._storage_url, sql.format(names)):
                found[row["conversation_id"]].append(row)
        return found


def _wait_for_the_killed(storage_url: str) -> None:
    """PostgreSQL ends by itself what a process had asked of it that is gone: a commit under way may still be done."""
    if not storage_url.startswith("sqlite"):
        wait_until(lambda: not rows(storage_url, BUSY), "the end of what the killed process had begun")


def _check_talk(talk: Talk, stored: list[Json], bills: list[Json]) -> None:
    by_id = {row["id"]: row for row in stored}
    by_request: dict[str, list[Json]] = defaultdict(list)
    for row in stored:
        by_request[row["request_id"]].append(row)
    billed = {bill["request_id"]: bill for bill in bills}
    assert len(billed) == len(bills)
    _check_once(talk, stored, by_id)
    killed = {request_id for request_id, bill in billed.items() if bill["status"] == "failed"}
    assert len(killed) <= talk.broken, f"{talk.style}: {len(killed)} bills of killed calls, {talk.broken} broke off"
    for request_id, bill in billed.items():
        if request_id in killed:
            assert not by_request[request_id], f"{talk.style}: a turn of a call that was killed"
            assert not json.loads(bill["completion"] or "{}").get("choices")
        else:
            _check_whole(talk, by_request[request_id], bill)
    for done in talk.done:
        request_id = str(done.told.request_id)
        assert request_id in billed, f"{talk.style}: an acknowledged turn without a bill"
        assert billed[request_id]["status"] == "complete"
        told, kept = done.told.bill(), json.loads(billed[request_id]["response_metadata"])
        assert (kept["usage"], kept["cost"]) == (told["usage"], told["cost"]), f"{talk.style}: another bill than told"
        _check_acknowledged(talk, done, by_request[request_id], by_id)


def _check_killed(talks: Sequence[Talk], bills: list[Json]) -> None:
    """A failed bill is one of a call that a kill broke off (§6.10): estimated, and of nobody who was told."""
    told = {str(done.told.request_id) for talk in talks for done in talk.done}
    broken = sum(talk.broken for talk in talks)
    assert len(bills) <= broken, f"{len(bills)} bills of killed calls, and {broken} broke off"
    for bill in bills:
        cost = json.loads(bill["response_metadata"])["cost"]
        assert bill["request_id"] not in told, "an acknowledged turn whose bill says that it was killed"
        assert bill["error_code"] == "process_killed", bill["error_code"]
        assert cost["estimated"] is True, cost


def _check_whole(talk: Talk, turn: list[Json], bill: Json) -> None:
    """A turn that stands in the ledger is there with all that belongs to it, its client told of it or not."""
    assert bill["status"] == "complete", f"{talk.style}: {bill['status']}"
    choices = [choice["index"] for choice in json.loads(bill["completion"])["choices"]]
    answers = [row["choice"] for row in turn if row["choice"] is not None]
    assert sorted(answers) == sorted(choices), f"{talk.style}: answers {answers} of choices {choices}"
    assert any(row["choice"] is None for row in turn), f"{talk.style}: answers without a question"


def _check_once(talk: Talk, stored: list[Json], by_id: dict[str, Json]) -> None:
    """Everything in these talks is said once: what stands there again was stored twice. A resend at once with another
    was appended behind that one (§3.7); what its client sends from then on is a branch, on which its turn stands, too.
    """
    if not talk.diverges:
        several = [words for words, n in Counter(said(json.loads(row["body"])) for row in stored).items() if n > 1]
        assert not several, f"{talk.style}: stored more than once: {several}"
    parents = {row["parent_id"] for row in stored}
    for leaf in (row for row in stored if row["id"] not in parents):
        path = [said(json.loads(row["body"])) for row in _path(leaf, by_id)]
        assert len(set(path)) == len(path), f"{talk.style}: doubled: {path}"


def _check_acknowledged(talk: Talk, done: Acknowledged, turn: list[Json], by_id: dict[str, Json]) -> None:
    expected = Counter(map(said, [*done.new, *done.answers]))
    brought = Counter(said(json.loads(row["body"])) for row in turn)
    whole = expected <= brought if talk.diverges else expected == brought
    assert whole, f"{talk.style}: stored is {brought}, told was {expected}"
    answer = next(row for row in turn if row["choice"] == 0)
    above = [said(json.loads(row["body"])) for row in _path(answer, by_id)]
    sent = [said(message) for message in (*done.before, *done.new, done.answers[0])]
    own = len(done.new) + 1
    assert above[-own:] == sent[-own:], f"{talk.style}: a turn that is not together: {above}"
    if talk.diverges:
        return
    if talk.style.resends:
        assert above == sent, f"{talk.style}: the way to an answer is {above}, its client sent {sent}"
    elif talk.style.at_once == 1:
        assert _within(sent, above), f"{talk.style}: {above} is the way to {sent}"
    assert set(sent) <= set(above), f"{talk.style}: {above} misses something of {sent}"


def _path(row: Json, by_id: dict[str, Json]) -> list[Json]:
    path = [row]
    while path[-1]["parent_id"] is not None:
        path.append(by_id[path[-1]["parent_id"]])
    return path[::-1]


def _within(part: list[Any], whole: list[Any]) -> bool:
    """Whether all of `part` stands in `whole` in this order."""
    rest = iter(whole)
    return all(each in rest for each in part)


def said(message: Json) -> tuple[Any, ...]:
    """What tells messages apart: role, text, calls, and which call a result answers."""
    calls = tuple(call["id"] for call in message.get("tool_calls") or ())
    return message["role"], message.get("content") or None, calls, message.get("tool_call_id")
