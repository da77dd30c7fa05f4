"""`GET /v1/conversations/{id}/context`: the window as the latest request left it (guarantee §11.8)."""

from typing import Any

from tests.support.answers import Json, ok, user
from tests.support.documents import keeper, lamps, prose
from tests.support.mock_upstream import Reply
from tests.support.team import Team

PARTS = ("system", "tools", "history", "artifacts", "current")


def window(team: Team, **query: str) -> Json:
    return ok(team.client.get(f"/conversations/{team.conversation}/context", params=query))


def ask(team: Team, *messages: Json, model: str = "small", **fields: Any) -> Json:
    team.upstream.handler = lambda _: Reply(text="I see.")
    body = {"model": model, "messages": list(messages), "conversation": team.conversation, **fields}
    answer = ok(team.post("/chat/completions", body))
    found: Json = answer["response_metadata"]
    team.conversation = found["conversation_id"]
    return found


def test_s11_8_the_window_is_that_of_the_latest_bill(team: Team) -> None:
    """§11.8: its parts add up to its tokens, of window and budget; the latest of a model can be asked for."""
    bill = ask(team, {"role": "system", "content": "House rules."}, user("Who keeps the lamp?"))
    told, found = bill["context_utilization"], window(team)
    assert (found["request_id"], found["model"], found["reason"]) == (bill["request_id"], "small", None)
    assert {name: part["tokens"] for name, part in found["parts"].items()} == told["breakdown"]
    assert sum(part["tokens"] for part in found["parts"].values()) == found["tokens"] == told["tokens_used"]
    assert (found["context_window"], found["budget_tokens"]) == (told["context_window"], told["budget_tokens"])
    assert found["share_of_budget"] == told["utilization"]
    assert found["parts"]["system"]["share_of_window"] == round(told["breakdown"]["system"] / 4096, 4)
    assert found["left"] == {"messages": 0, "turns": 0, "artifacts_reduced": [], "artifacts_excluded": []}
    assert (found["segments"], found["memory"]) == ([], {"things": 0})
    later = ask(team, user("And now?"), model="gpt-4o")
    assert window(team)["request_id"] == later["request_id"]
    assert window(team, model="small")["request_id"] == bill["request_id"]


def test_s11_8_things_are_counted(team: Team) -> None:
    """§11.8: those that the conversation is about."""
    ask(team, user("Hi"), memory={"remember": [{"type": "order", "id": "7"}, {"type": "order", "id": "8"}]})
    assert window(team)["memory"] == {"things": 2}


def test_s11_8_what_left_is_told(team: Team) -> None:
    """§11.8: turns and messages that left the window, and what is left of artifacts, also where they only stand."""
    for number in range(8):
        ask(team, user(f"Question {number}: {prose(number, 400)}"))
    bill = ask(team, user("Now?"))
    found = window(team)
    assert found["left"]["messages"] == bill["context_utilization"]["messages_excluded"] > 0
    assert 2 * found["left"]["turns"] == found["left"]["messages"]
    ask(team, user("Who keeps lamp 50?"), attachments=[{"title": "Lamps", "content": lamps(100)}])
    ask(team, user("Thanks."))
    left = window(team)["left"]["artifacts_reduced"]
    (artifact,) = [each for each in left if each["artifact_type"] == "document"]
    assert artifact["artifact_id"].startswith("art_")
    assert 0 < artifact["processed_size_chars"] < artifact["original_size_chars"] == len(lamps(100))
    assert keeper(50) not in str(window(team)), "references, no content"


def test_s11_8_turns_are_those_of_the_requests_own_branch(team: Team) -> None:
    """§11.8: of two branches, one with two questions a turn, the one that the latest request went on from."""
    said: list[Json] = []
    for number in range(8):
        said.append(user(f"Question {number}: {prose(number, 400)}"))
        ask(team, said[-1])
        said.append({"role": "assistant", "content": "I see."})
    ask(team, *said[:2], user("Another way"))
    for number in range(8):
        ask(team, user(f"First: {prose(20 + number, 200)}"), user(f"Then: {prose(40 + number, 200)}"))
    left = window(team)["left"]
    assert left["messages"] > 4
    assert left["turns"] == 2 + 2 * ((left["messages"] - 4) // 3) + min((left["messages"] - 4) % 3, 2)
    ask(team, *said, user("Back again"))
    left = window(team)["left"]
    assert (left["messages"] > 4, left["turns"]) == (True, left["messages"] // 2)


def test_s11_8_without_an_answered_request_there_are_nulls_and_a_reason(team: Team) -> None:
    """§11.8: also where the only request failed, where another model was asked, and in mode `off`."""
    team.begin(items=[{"type": "message", "role": "user", "content": "Hi"}])
    for found in (window(team), window(team, model="small"), window(team, model="\x00")):
        assert (found["reason"], found["request_id"], found["context_window"]) == ("no_answered_request", None, None)
        assert [found["parts"][name]["tokens"] for name in PARTS] == [0] * 5
    team.upstream.handler = lambda _: Reply(status=500)
    body = {"model": "small", "messages": [user("Well?")], "conversation": team.conversation}
    assert team.post("/chat/completions", body).status_code == 500
    assert window(team)["reason"] == "no_answered_request"
    bill = ask(team, user("Once more"), context={"mode": "off"})
    found = window(team)
    assert (found["reason"], found["request_id"], found["tokens"]) == ("not_counted", bill["request_id"], 0)
