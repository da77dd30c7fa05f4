"""A conversation's branches as a tree, and its turns without what was said."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gateway.core.types.past_turns import ConversationOutline, OutlinedMessage, OutlinedReplay
from gateway.core.types.turn import LedgerEntry
from gateway.inspection.explained_conversation import CHOICE, EDITED, FAILED, REPLAYED, branch_of, branch_runs
from gateway.inspection.rebuilt_turns import turns_of
from gateway.inspection.window_bar import window_bar

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Tree:
    """Messages as they are added, each under an id of its own."""

    def __init__(self) -> None:
        self.messages: list[OutlinedMessage] = []

    def add(
        self,
        name: str,
        parent: str | None,
        role: str = "user",
        request: str = "",
        choice: int | None = None,
        status: str = "complete",
        call: str | None = None,
    ) -> str:
        number = 0 if parent is None else next(m.number for m in self.messages if m.message_id == parent) + 1
        at = NOW + timedelta(seconds=len(self.messages))
        message = OutlinedMessage(name, parent, role, status, request or name, choice, None, number, at, call)
        self.messages.append(message)
        return name

    def answer(self, name: str, parent: str, request: str, choice: int = 0, status: str = "complete") -> str:
        return self.add(name, parent, "assistant", request, choice, status)

    def outline(self, head: str, *replays: OutlinedReplay) -> ConversationOutline:
        return ConversationOutline("conv_1", "t", head, NOW, NOW, self.messages, replays=replays)


def test_a_conversation_without_forks_is_one_run() -> None:
    tree = Tree()
    tree.answer("a2", tree.add("q2", tree.answer("a1", tree.add("q1", None, request="r1"), "r1"), request="r2"), "r2")
    (run,) = branch_runs(tree.outline("a2"))
    assert (run.first_turn, run.last_turn, run.messages, run.requests, run.leaf_id) == (1, 2, 4, 2, "a2")
    assert run.is_current
    assert run.why is None


def test_what_a_user_says_amid_a_tool_loop_begins_no_turn() -> None:
    """Also where the branch forks right there."""
    tree = Tree()
    tree.add("t1", tree.answer("c1", tree.add("q1", None, request="r1"), "r1"), "tool", "r2", call="c1")
    tree.answer("a1", tree.add("amid", "t1", request="r2"), "r2")
    tree.answer("b1", tree.add("other", "t1", request="r3"), "r3")
    tree.answer("a2", tree.add("q2", "a1", request="r4"), "r4")
    runs = branch_runs(tree.outline("a2"))
    assert [(run.first_turn, run.last_turn) for run in runs] == [(1, 1), (1, 2), (1, 1)]
    path = branch_of(tree.outline("a2"), None)
    assert [[request.request_id for request in turn.requests] for turn in turns_of(path)] == [["r1", "r2"], ["r4"]]


def test_siblings_edits_failures_and_replays_say_what_they_are() -> None:
    tree = Tree()
    tree.add("q1", None, request="r1")
    tree.answer("a1", "q1", "r1")
    tree.answer("b1", "q1", "r1", choice=1)
    tree.answer("p1", "q1", "r9")
    tree.add("q2", "a1", request="r2")
    tree.answer("a2", "q2", "r2")
    tree.add("e2", "a1", request="r3")
    tree.answer("f2", "e2", "r3")
    tree.add("x2", "a1", request="r4", status="failed")
    runs = branch_runs(tree.outline("a2", OutlinedReplay("replay_1", 1, 1, "p1")))
    by_end = {run.leaf_id: run for run in runs}
    assert by_end["a2"].is_current
    assert [by_end[name].why for name in ("b1", "p1", "f2", "x2", "a2")] == [CHOICE, REPLAYED, EDITED, FAILED, None]
    assert by_end["p1"].replay_id == "replay_1"
    root, first = runs[0], runs[1]
    assert (root.leaf_id, root.depth) == (None, 0)
    assert (first.parent, first.depth, first.is_current) == (0, 1, True)
    assert (by_end["a2"].first_turn, by_end["f2"].first_turn) == (2, 2)


def test_a_result_that_was_committed_late_goes_back_to_its_turn() -> None:
    """As `GET …/turns` counts them: another request's turn was committed between the call and its result."""
    tree = Tree()
    tree.add("q1", None, request="r1")
    tree.answer("c1", "q1", "r1")
    tree.add("q2", "c1", request="r2")
    tree.answer("a2", "q2", "r2")
    tree.add("t1", "a2", "tool", "r3", call="c1")
    tree.answer("a1", "t1", "r3")
    turns = turns_of(branch_of(tree.outline("a1")))
    names = [[each.message.message_id for each in turn.messages] for turn in turns]
    assert names == [["q2", "a2"], ["q1", "c1", "t1", "a1"]]
    assert [r.request_id for r in turns[1].requests] == ["r1", "r3"]


def test_the_parts_of_a_window_are_its_tokens_and_what_came_back_is_apart() -> None:
    records = [
        {"strategy": "rag_extract", "source": "turns:1-4", "original_size_chars": 900, "processed_size_chars": 300},
        {"strategy": "rag_extract", "source": "step_1:t", "original_size_chars": 900, "processed_size_chars": 100},
        {"strategy": "exclude", "source": "step_2:t", "original_size_chars": 50, "processed_size_chars": 0},
    ]
    breakdown = {"system": 10, "tools": 20, "history": 30, "artifacts": 400, "current": 40}
    used = {"breakdown": breakdown, "artifacts_processed": records, "messages_excluded": 5, "context_window": 1000}
    entry = LedgerEntry("r", "t", None, None, "m", "complete", False, NOW, {"context_utilization": used}, ())
    bar = window_bar(entry)
    assert bar.tokens == sum(breakdown.values()) == sum(bar.parts.values())
    assert (bar.parts["recalled"], bar.parts["artifacts"]) == (300, 100)
    assert (bar.left.messages, len(bar.left.reduced), len(bar.left.excluded), bar.left.chars) == (5, 1, 1, 850)
    assert (bar.full, bar.cached, bar.left.by) == (1000, 0, None)
    assert (bar.left.tokens, bar.left.about) == (850, True), "at what those that stayed took: a token a character"
    fitted = window_bar(
        replace(
            entry,
            metadata={"context_utilization": {**used, "budget_tokens": 600, "economics": {"realised_tokens": 777}}},
        )
    )
    assert (fitted.full, fitted.limit, fitted.free, fitted.window) == (600, 600, 100, 1000), "the budget's, first"
    assert (fitted.left.tokens, fitted.left.about) == (777, False), "as the bill has it"
    bound = {**used, "economics": {"realised_tokens": 77}}
    filled = window_bar(replace(entry, metadata={"context_utilization": bound}))
    assert (filled.left.tokens, filled.left.about) == (850, True), "a bill counts no more than the window would hold"
    bounded = replace(entry, metadata={"context_utilization": {**used, "left_by": "max_turns"}})
    assert window_bar(bounded).left.by == "max_turns"
