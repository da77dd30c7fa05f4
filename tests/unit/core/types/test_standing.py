"""What a stored bill leaves out of its list is what the messages give again, whatever they are (ADR 19)."""

import random

import pytest

from gateway.billing.metadata import in_answer, response_metadata
from gateway.context.artifacts.collect import extract_artifacts_from_messages, unique_ids
from gateway.core import jsons
from gateway.core.jsons import Json
from gateway.core.types import omitted_records
from gateway.core.types.bill import ArtifactUsageRecord, ContextUtilizationMetadata, ResponseMetadata
from gateway.core.types.conversation import ConversationMessage

TEXTS = ["still running", "done", *(f"result {n}" for n in range(30))]


class Conversation:
    """A stored conversation at random: steps with several calls, results that repeat, are missing or answer nothing,
    messages that the request leaves out, and the list of its bill."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        bodies: list[Json] = []
        while len(bodies) < self.random.choice((6, 60)):
            bodies += self._step() if self.random.random() < 0.8 else [{"role": "user", "content": "And?"}]
        stored = [
            ConversationMessage(body["role"], body, sequence_number=n, message_id=f"msg_{n}")
            for n, body in enumerate(bodies)
        ]
        self.path = {n: message.body for n, message in enumerate(stored)}
        kept = [message for message in stored if self.random.random() > 0.02]
        new = [ConversationMessage(body["role"], body, sequence_number=len(bodies) + n) for n, body in
               enumerate(self._step())]  # fmt: skip
        self.messages = [*kept, *new]
        self.current = self.random.choice((0, len(kept) // 2, len(kept)))
        self.records = self._records(len(kept))
        self.metadata = self.told(None)

    def _step(self) -> list[Json]:
        calls = [
            {"id": f"c{number}", "type": "function", "function": {"name": f"tool{n}"}}
            for n, number in enumerate(self.random.sample(range(4), self.random.choice((1, 1, 1, 2, 3))))
        ]
        found: list[Json] = [{"role": "assistant", "content": None, "tool_calls": calls}]
        for call in calls:
            if self.random.random() < 0.05:
                continue
            name = {"name": "its own"} if self.random.random() < 0.1 else {}
            answered = call["id"] if self.random.random() > 0.05 else "nothing"
            found.append({"role": "tool", "tool_call_id": answered, "content": self.random.choice(TEXTS), **name})
        return found

    def _records(self, stored: int) -> list[ArtifactUsageRecord]:
        found = []
        for each in unique_ids(extract_artifacts_from_messages(self.messages, self.current)):
            index = each.place.message
            if self.random.random() < 0.05 or index is None:
                continue  # it left the window
            size, reduced = each.size_chars, self.random.random() < 0.3
            record = ArtifactUsageRecord(
                artifact_id=each.artifact_id,
                source=each.source,
                artifact_type="tool_result",
                strategy=self.random.choice(("exclude", "rag_extract")) if reduced else "include_full",
                original_size_chars=size,
                processed_size_chars=self.random.choice((0, 1)) if reduced else size,
                cache_hit=self.random.random() < 0.05,
                standing=index < stored and self.random.random() > 0.1,
                message=index,
            )
            found.append(record)
        return [*found, ArtifactUsageRecord("art_d", "attachment:0:d", "document", "exclude", 7, 0, standing=True)]

    def short(self) -> Json:
        unlisted = omitted_records.unlisted_among(self.records, self.messages, self.current)
        return self.told(unlisted)

    def told(self, unlisted: omitted_records.OmittedRecords | None) -> Json:
        known = ResponseMetadata("req_1", "conv_1", None, "m", [], None, None, ContextUtilizationMetadata("m"))
        assert known.context_utilization is not None
        known.context_utilization.artifacts_processed = self.records
        return response_metadata(known, unlisted)


def looked_up(short: Json, path: dict[int, Json]) -> Json:
    """The bill with all of its records, out of a path by numbers."""
    unlisted = omitted_records.unlisted_of(short)
    if unlisted is None:
        return short
    last = -1 if unlisted["behind"] is None else int(unlisted["behind"][4:])
    order = [number for number in sorted(path) if number <= last]
    then = omitted_records.as_numbered_then(unlisted, [(now, f"msg_{number}") for now, number in enumerate(order)])
    needed = omitted_records.messages_in_runs(unlisted, then)
    said = [(number, omitted_records.said_by(path[int(name[4:])])) for number, name in then if name in needed]
    return omitted_records.with_standing(short, said)


def records_of(bill: Json) -> list[Json]:
    found: list[Json] = bill["context_utilization"]["artifacts_processed"]
    return found


@pytest.mark.parametrize("block", range(10))
def test_s6_2_a_bill_is_the_same_again(block: int) -> None:
    left_out = 0
    for seed in range(100 * block, 100 * block + 100):
        made = Conversation(seed)
        short = made.short()
        assert looked_up(short, made.path) == made.metadata, seed
        assert jsons.dumps(in_answer(short)) == jsons.dumps(in_answer(made.metadata)), seed
        left_out += len(records_of(made.metadata)) - len(records_of(short))
    assert left_out > 300


@pytest.mark.parametrize("block", range(10))
def test_s2_what_is_left_after_deletions_keeps_its_numbers(block: int) -> None:
    """But for the count of results that are the same, and results whose calls are gone."""
    for seed in range(100 * block, 100 * block + 100):
        made = Conversation(seed)
        short, path = made.short(), dict(made.path)
        before = {record["source"] for record in records_of(short)}
        for _ in range(made.random.choice((1, 2, 5))):
            unlisted = omitted_records.unlisted_of(short)
            if unlisted is None or unlisted["behind"] is None:
                break
            last = int(unlisted["behind"][4:])
            gone = made.random.choice([number for number in path if number <= last])
            now = sorted(path).index(gone)
            parent = max((number for number in path if number < gone), default=None)
            body = path.pop(gone)
            short = omitted_records.without_message(
                short, now, None if parent is None else f"msg_{parent}", ends=gone == last, calls="tool_calls" in body
            )
        rest = [{**record, "artifact_id": record["artifact_id"][:20]} for record in records_of(looked_up(short, path))]
        due = [{**record, "artifact_id": record["artifact_id"][:20]} for record in records_of(made.metadata)]
        assert all(record in due for record in rest), seed
        assert before <= {record["source"] for record in rest}


def test_s6_2_a_bill_whose_messages_are_numbered_otherwise_lists_what_was_decided() -> None:
    made = Conversation(1)
    short = made.short()
    assert omitted_records.UNLISTED in short["context_utilization"]
    moved = {number: body for number, body in made.path.items() if number != 2}
    assert records_of(looked_up(short, moved)) == records_of(short)
    assert omitted_records.UNLISTED not in looked_up(short, moved)["context_utilization"]
