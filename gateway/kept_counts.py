"""Token counts go where the messages go: a request counts only what is new to it."""

from dataclasses import replace

from gateway.fitting.count import Counting
from gateway.models.conversation import ConversationMessage, TokenCounts
from gateway.models.turn import NewAnswer, StoredTurn


def with_counts(turn: StoredTurn, counting: Counting | None) -> StoredTurn:
    """The turn with the counts that its request made. One that surely fits makes none, and keeps none."""
    if counting is None or not counting.is_exact:
        return turn

    def message(new: ConversationMessage) -> ConversationMessage:
        form = new.rendered if new.rendered is not None else new.body
        return replace(new, tokens=TokenCounts(form, counting.counted(form)))

    def answer(new: NewAnswer) -> NewAnswer:
        body = new.message.body
        return replace(new, message=replace(new.message, tokens=TokenCounts(body, counting.counted_answer(body))))

    return replace(
        turn,
        new_messages=tuple(map(message, turn.new_messages)),
        answers=tuple(map(answer, turn.answers)),
        counts=tuple(counting.counted_anew()),
    )
