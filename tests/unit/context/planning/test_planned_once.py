"""What was decided for an artifact, and be it to leave it out, costs nothing again until something has to leave
(guarantee §5)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.answers import Json, all_used, chat, used, user
from tests.support.documents import prose
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

TURNS = 16
COMES = (0, 4, 8, 12)


def says(text: str) -> Callable[[Json], Reply]:
    return lambda body: Reply(text=text)


@pytest.mark.parametrize("strategy", ["rag_extract", "exclude"])
def test_s5_a_long_session_is_planned_only_where_something_is_new_or_has_to_leave(
    start_gateway: GatewayFactory, upstream: MockUpstream, strategy: str
) -> None:
    """Documents come and are pushed out of the window: from then on they stand as left out, told as such, and the
    planner is asked again only for new ones, or when the window is decided anew (its beginning changes)."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    more: dict[str, Any] = {}
    before: list[Json] = []
    free = left_out = 0
    for turn in range(TURNS):
        said = prose(turn + 300, 120)
        upstream.handler = models = InternalModels(every(strategy), primary=says(said))
        asked = user(f"Tell me about harbour {turn}, shortly? {prose(turn, 60)}")
        new = [{"title": f"A{turn}", "content": prose(100 + turn, 900)}] if turn in COMES else []
        answer = chat(gateway, model="small", messages=[asked], attachments=new, **more)
        more = {"conversation": answer["conversation"]}
        now = models.answered[-1]["messages"]
        anew = now[: len(before)] != before
        told, records = used(answer), all_used(gateway, answer)["artifacts_processed"]
        if models.planned:
            assert new or anew, (turn, told["planning_reason"])
        if not (new or anew):
            assert (told["planning_reason"], told["planning_cost"]["total_cost"]) == ("standing", 0), turn
            free += 1
            left_out += any(record["strategy"] == "exclude" for record in records)
        documents = {record["source"] for record in records if "attachment" in record["source"]}
        assert len(documents) == sum(come <= turn for come in COMES), "each of the conversation is told"
        before = now
    assert (free >= 3, left_out >= 1) == (True, True), (free, left_out)


def test_s5_results_that_left_with_their_turns_are_not_planned_again(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """An agent that resends everything: the planner is asked where a result is new or the window is decided anew."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    upstream.handler = models = InternalModels(every("rag_extract"))
    said: list[Json] = []
    before: list[Json] = []
    reasons: list[str] = []

    def send(text: Reply, *, new: bool) -> Json:
        nonlocal before
        models.primary, asked = (lambda body: text), len(models.planned)
        answer = chat(gateway, model="small", messages=said)
        now = models.answered[-1]["messages"]
        anew = now[: len(before)] != before
        told = used(answer)
        if len(models.planned) > asked:
            assert new or anew, (len(said), told["planning_reason"])
        elif not (new or anew):
            reasons.append(told["planning_reason"])
        before = now
        message: Json = answer["choices"][0]["message"]
        said.append({"role": "assistant", **{k: message[k] for k in ("content", "tool_calls") if message.get(k)}})
        return message

    for turn in range(TURNS):
        said.append(user(f"Tell me about harbour {turn}, shortly? {prose(turn, 60)}"))
        if turn % 3 == 0:
            calls = send(Reply(tool_calls=[("look_up", {"harbour": turn})]), new=False)["tool_calls"]
            said.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": prose(100 + turn, 900)})
        send(Reply(text=prose(turn + 300, 120)), new=turn % 3 == 0)
    assert reasons[0] == "no_artifacts"
    assert set(reasons[1:]) == {"standing"}
    assert len(reasons) > TURNS / 2
