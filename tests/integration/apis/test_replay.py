"""Turns of a conversation that are run anew on a branch (guarantee §11): never over the old, billed as any request,
told as they come, and gone on with behind the last finished one."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx

from tests.support.answers import Json, assistant, exact, stored_of, user
from tests.support.documents import prompt_tokens
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.process import wait_until
from tests.support.replaying import Replaying, chat, refused, replayed, said, turn, turns
from tests.support.team import Team, claude
from tests.support.tool_loop import ASK, TOOLS, call, calls, result


def begin(team: Team, count: int = 3) -> list[Json]:
    """A conversation of so many turns."""
    found = []
    for number in range(1, count + 1):
        team.upstream.reply(text=f"answer {number}")
        found.append(chat(team, user(f"question {number}")))
    return found


def anew(team: Team) -> None:
    """From now on answers say which question and which model they are of."""

    def answer(record: Record) -> Reply:
        asked = [m for m in record.body["messages"] if m["role"] == "user"][-1]["content"]
        return Reply(text=f"{record.body['model']} on {asked}")

    team.upstream.handler = answer


def test_s11_18_turns_are_run_anew_on_a_branch(team: Team) -> None:
    """§11: by another model, from turn 2; each sees the new answers before it. The old branch stays, and is current."""
    begin(team)
    before, items = turns(team), team.items()
    anew(team)
    found = replayed(team, model="gpt-4o-mini", from_turn=2)
    assert [(each["turn"], each["status"]) for each in found.turns] == [(2, "complete"), (3, "complete")]
    assert found.text(2) == "gpt-4o-mini on question 2" == found.turns[0]["message"]["content"]
    assert team.upstream.chats[-1].body["messages"] == [
        *(user("question 1"), assistant("answer 1")),
        *(user("question 2"), assistant("gpt-4o-mini on question 2")),
        user("question 3"),
    ]
    assert (found.end["status"], found.end["head"], found.end["turns"]) == ("complete", "stays", 2)
    assert (turns(team), team.items()) == (before, items)
    branch = turns(team, replay_id=found.replay_id)
    assert branch[0] == before[0]
    assert [each["models"] for each in branch] == [["gpt-4o"], ["gpt-4o-mini"], ["gpt-4o-mini"]]
    assert turn(team, 3, replay_id=found.replay_id)["requests"][0]["sent"] == team.sent
    chat(team, user("And now?"))
    assert team.sent[-2] == assistant("answer 3")


def test_s11_18_its_bills_are_ordinary_ones(team: Team) -> None:
    """§11: a row for each request, which the conversation's totals hold; what the events say adds up to them."""
    begin(team)
    old = sum(each["cost"]["total_cost"] for each in turns(team))
    found = replayed(team)
    cost = sum(each["cost"]["total_cost"] for each in found.turns)
    assert cost == found.end["cost"]["total_cost"] > 0
    stored = {each["id"]: each for each in stored_of(team.gateway, str(team.conversation), team.token)}
    bills = {each["response_metadata"]["request_id"]: each for each in stored.values()}
    assert len(bills) == 6
    for each in found.turns:
        assert bills[each["request_id"]]["usage"]["cost"] == each["cost"]["total_cost"]
        assert bills[each["request_id"]]["status"] == "complete"
    totals = exact(team.client.get(f"/conversations/{team.conversation}").text)["totals"]
    assert (totals["requests"], totals["cost"]["total_cost"]) == (6, old + cost)


def test_s11_18_answers_that_are_the_same_are_a_branch_all_the_same(team: Team) -> None:
    """§11: each replayed turn is its own, whatever the model says; each message of the first is stored once."""
    begin(team)
    for number in (1, 2, 3):
        team.upstream.reply(text=f"answer {number}")
    found = replayed(team)
    branch, old = turns(team, replay_id=found.replay_id), turns(team)
    ids = [{name for each in way for name in each["request_ids"]} for way in (branch, old)]
    assert not ids[0] & ids[1]
    assert branch[0]["id"] == old[0]["id"], "the first question is shared"
    assert [each["request_ids"] for each in branch] == [each["request_ids"] for each in found.turns]
    words = [f"{who} {n}" for n in (1, 2, 3) for who in ("question", "answer")]
    assert said(team) == words
    team.conversation = None  # a client that sends all again goes on where it was answered first
    chat(team, *(user(text) if "question" in text else assistant(text) for text in words), user("And then?"))
    assert [each["id"] for each in turns(team)][:3] == [each["id"] for each in old]


def test_s11_18_one_turn_is_made_again_with_changes_and_becomes_current(team: Team) -> None:
    """§11: another instruction of one agent; what followed it stays on the old branch."""
    system = {"role": "system", "content": "House rules."}
    team.ask(claude("max", instruction="Be brief."), system, user("Write a letter."), answer="Dear all")
    team.ask("sarah", user("Thanks"), answer="Bye")
    found = replayed(team, from_turn=1, to_turn=1, agents={"max": {"instruction": "Be kind."}}, move_head=True)
    assert team.sent == [system, {"role": "system", "content": "Be kind."}, user("[MESSAGE]\nWrite a letter.")]
    assert found.turns[0]["agent"] == {"id": "max", "type": "claude-code"}
    assert found.end["head"] == "moved"
    assert said(team) == ["House rules.", "Write a letter.", found.text(1)]
    chat(team, user("Shorter"))
    assert len(team.sent) == 4
    assert team.items()[2]["agent"] == "max"


def test_s11_18_agents_that_were_given_the_latest_message_are_given_the_new_one(team: Team) -> None:
    """§11: a turn of several agents is run agent by agent."""
    team.ask(claude("max"), user("Hi"), answer="Old.")
    team.ask({"id": "sarah", "type": "openai-codex"}, answer="Old, too.")
    team.upstream.reply(text="New.")
    team.upstream.reply(text="New, too.")
    found = replayed(team)
    assert team.sent == [user("[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nNew.")]
    assert len(found.turns) == 1
    assert len(found.turns[0]["request_ids"]) == 2
    assert turns(team, replay_id=found.replay_id)[0]["agents"] == ["max", "sarah"]


def test_s11_18_a_branch_does_not_become_current_where_the_conversation_went_on(team: Team) -> None:
    """§11: what was said meanwhile stays the current branch; without that the head can be moved later."""
    begin(team, 2)
    found = replayed(team, from_turn=2)
    later = replayed(team, replay_id=found.replay_id, move_head=True)
    assert (later.end["head"], later.turns) == ("moved", [])
    assert said(team)[-1].startswith("echo")
    old = replayed(team, from_turn=2)
    chat(team, user("Meanwhile"))
    assert replayed(team, replay_id=old.replay_id, move_head=True).end["head"] == "stays"
    assert said(team)[-2] == "Meanwhile"


def leaving(team: Team, turn: int) -> str:
    """Asks for a replay and leaves in the midst of that turn; returns the replay's id."""
    body = {"parameters": {"max_tokens": 50}}
    lines: list[Json] = []
    with team.client.stream("POST", f"/conversations/{team.conversation}/replay", json=body) as answer:
        for line in answer.iter_lines():
            if line:
                lines.append(exact(line.removeprefix("data: ")))
                if lines[-1].get("turn") == turn and lines[-1]["object"].endswith("delta"):
                    break
    return str(lines[0]["replay_id"])


def test_s11_18_who_leaves_goes_on_behind_the_last_finished_turn(team: Team) -> None:
    """§11, §3.6: the turn under way is partial and no other begins; nothing that is finished is paid again."""
    begin(team)
    team.upstream.reply(text="first anew")
    team.upstream.reply(text="second anew, of which only a part comes", stall_after=4)
    name = leaving(team, 2)
    wait_until(lambda: statuses(team).count("partial") == 1, "the partial turn")
    assert len(team.upstream.chats) == 5
    wait_until(lambda: team.upstream.in_flight == 0, "the end of the call")
    anew(team)
    wait_until(lambda: resumed(team, name).status_code == 200, "that nobody holds it", interval=0.1)
    assert statuses(team).count("complete") == 6
    assert len(team.upstream.chats) == 7
    assert team.sent[1] == assistant("first anew")
    assert team.sent[3] == assistant("gpt-4o on question 2")
    assert team.upstream.last.body["max_tokens"] == 50
    branch = turns(team, replay_id=name)
    assert [each["status"] for each in branch] == ["complete"] * 3
    assert replayed(team, replay_id=name).end["cost"]["total_cost"] == sum(e["cost"]["total_cost"] for e in branch)
    assert len(team.upstream.chats) == 7


def statuses(team: Team) -> list[str]:
    return [each["status"] for each in stored_of(team.gateway, str(team.conversation), team.token)]


def resumed(team: Team, name: str) -> httpx.Response:
    return team.post(f"/conversations/{team.conversation}/replay", {"replay_id": name})


def test_s11_18_a_turn_that_fails_ends_it_and_can_be_tried_again(team: Team) -> None:
    """§11, §7.3: an event, an error and no `[DONE]`; before the first event the error is the answer."""
    begin(team)
    team.upstream.reply(text="first anew")
    team.upstream.reply(status=500)
    answer = team.post(f"/conversations/{team.conversation}/replay", {})
    found = Replaying(answer)
    assert [each["status"] for each in found.turns] == ["complete", "failed"]
    assert not found.done
    assert "code" in found.end["error"]
    again = replayed(team, replay_id=found.replay_id)
    assert [each["turn"] for each in again.turns] == [2, 3]
    assert again.end["turns"] == 3
    team.upstream.reply(status=500)
    refusal = team.post(f"/conversations/{team.conversation}/replay", {})
    assert refusal.status_code == 500
    assert said(team)[-1] == "answer 3"


def test_s11_18_one_replay_is_run_by_one_request(team: Team) -> None:
    """§11: who asks for it meanwhile is told to wait."""
    begin(team, 2)
    gate = threading.Event()
    team.upstream.reply(text="first")
    team.upstream.reply(text="second", gate=gate)
    names: list[str] = []

    def run() -> None:
        with team.client.stream("POST", f"/conversations/{team.conversation}/replay", json={}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {") and not names:
                    names.append(exact(line.removeprefix("data: "))["replay_id"])

    thread = threading.Thread(target=run)
    thread.start()
    team.upstream.wait_for_chats(4)
    wait_until(lambda: bool(names), "its name")
    answer = resumed(team, names[0])
    gate.set()
    thread.join()
    refused(answer, 409, "replay_running", "replay_id")
    assert int(answer.headers["retry-after"]) > 0
    assert len(team.upstream.chats) == 4


def looped(team: Team) -> None:
    """A turn with a call and its result, and one without."""
    team.upstream.reply(message=calls(call("c1", city="Bern"), call("c2", "clock")))
    chat(team, ASK, tools=TOOLS)
    team.upstream.reply(text="Rain at noon.")
    chat(team, result("c1", "12 degrees, rain"), result("c2", "noon"), tools=TOOLS)
    chat(team, user("Thanks"))


def test_s11_18_stored_results_answer_the_same_calls(team: Team) -> None:
    """§11: by name and arguments, whatever their order, spacing and ids."""
    looped(team)
    spaced = call("x2", city="Bern")
    spaced["function"]["arguments"] = '{ "city" : "Bern" }'
    team.upstream.reply(message=calls(call("x1", "clock"), spaced))
    team.upstream.reply(text="Rain, 12 degrees.")
    found = replayed(team, parameters={"tools": TOOLS})
    steps = team.upstream.chats[-2].body["messages"]
    assert [each["role"] for each in steps] == ["user", "assistant", "tool", "tool"]
    assert steps[2:] == [result("x1", "noon"), result("x2", "12 degrees, rain")]
    assert [each["status"] for each in found.turns] == ["complete", "complete"]
    assert len(found.turns[0]["request_ids"]) == 2
    assert found.text(1) == "Rain, 12 degrees."


def test_s11_18_a_call_that_nobody_can_answer_is_told(team: Team) -> None:
    """§11: the replay ends there, and goes on with the client's result."""
    looped(team)
    team.upstream.reply(message=calls(call("y1", city="Bern"), call("y2", city="Basel")))
    found = replayed(team, parameters={"tools": TOOLS})
    assert (found.end["status"], found.done) == ("needs_tool", True)
    assert found.turns[0]["calls"] == [call("y2", city="Basel")]
    again = replayed(team, replay_id=found.replay_id)
    assert again.turns[0]["calls"] == [call("y2", city="Basel")]
    asked = len(team.upstream.chats)
    team.upstream.reply(text="Rain and sun.")
    results = [{"tool_call_id": "y2", "content": "sun"}]
    last = replayed(team, replay_id=found.replay_id, tool_results=results)
    assert team.upstream.chats[asked].body["messages"][2:] == [result("y1", "12 degrees, rain"), result("y2", "sun")]
    assert [(each["turn"], each["status"]) for each in last.turns] == [(1, "complete"), (2, "complete")]
    assert last.end["status"] == "complete"
    branch = turns(team, replay_id=found.replay_id)
    assert last.end["cost"]["total_cost"] == sum(each["cost"]["total_cost"] for each in branch)


def test_s11_18_tools_are_named_or_left_out_on_purpose(team: Team) -> None:
    """§11: an empty list asks without tools."""
    looped(team)
    refusal = team.post(f"/conversations/{team.conversation}/replay", {})
    refused(refusal, 400, "missing_required_parameter", "parameters.tools")
    replayed(team, parameters={"tools": []}, to_turn=1)
    assert team.upstream.last.body["messages"] == [ASK]
    assert "tools" not in team.upstream.last.body


def test_s11_18_later_documents_are_not_there_yet(team: Team) -> None:
    """§11: a turn is given the documents that were attached by then."""
    chat(team, user("Hi"), attachments=[{"content": "The lamp is called Copper Heron.", "title": "A"}])
    chat(team, user("And?"), attachments=[{"content": "The oil is olive.", "title": "B"}])
    replayed(team)
    first, second = (str(record.body["messages"]) for record in team.upstream.chats[-2:])
    assert "Copper Heron" in first
    assert "olive" not in first
    assert "Copper Heron" in second
    assert "olive" in second


def test_s11_18_an_estimate_asks_nobody_and_stores_nothing(team: Team) -> None:
    """§11: the range of each turn and of all; a real run is within it."""
    begin(team)
    before = len(team.upstream.chats)
    answer = team.post(f"/conversations/{team.conversation}/replay", {"dry_run": True, "parameters": {"max_tokens": 9}})
    assert answer.status_code == 200, answer.text
    found = exact(answer.text)
    assert len(team.upstream.chats) == before
    assert [each["turn"] for each in found["turns"]] == [1, 2, 3]
    for end in ("min", "max"):
        parts = [each["estimated_cost"][end] for each in found["turns"]]
        assert found["estimated_cost"][end] == sum(parts) > 0
    assert len(stored_of(team.gateway, str(team.conversation), team.token)) == 3
    unbounded = exact(team.post(f"/conversations/{team.conversation}/replay", {"dry_run": True, "model": "bench"}).text)
    assert unbounded["estimated_cost"] == {"min": None, "max": None}


REPORT = " lamp" * 16_493


def test_s11_18_the_workflow_of_the_source_adds_up(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11: four writers of 16,500 tokens each and 2,000 of answer each, at 0.075 and 0.30 USD a million, cost
    0.00735 USD: estimated, billed and run anew."""
    flash: Json = {"input_cost_per_token": 0.075e-6, "output_cost_per_token": 0.3e-6, "tokenizer": "o200k_base"}
    flash |= {"max_input_tokens": 1_000_000, "max_output_tokens": 8_000}
    params = {"model": "openai/flash", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    gateway = start_gateway({"model_list": [{"model_name": "flash", "litellm_params": params, "model_info": flash}]})
    usage = {"prompt_tokens": 16_500, "completion_tokens": 2_000, "total_tokens": 18_500}
    upstream.handler = lambda _: Reply(text="Dear Ms Lamp", usage=usage)
    team, writer = Team(gateway, upstream), {"type": "plain", "window": 0}
    with team.client:
        for number in range(4):
            found = chat(team, user(REPORT), model="flash", agent={"id": f"writer-{number}", **writer})
            assert found["usage"]["cost"] == Decimal("0.0018375")
        totals = exact(team.client.get(f"/conversations/{team.conversation}").text)["totals"]
        assert totals["cost"]["total_cost"] == Decimal("0.00735")
        change: Json = {"agents": {f"writer-{n}": {"window": 0} for n in range(4)}, "parameters": {"max_tokens": 2_000}}
        answer = team.post(f"/conversations/{team.conversation}/replay", {**change, "dry_run": True})
        estimate = exact(answer.text)
        assert prompt_tokens({"messages": [user(REPORT)]}) == 16_500
        assert estimate["estimated_cost"] == {"min": Decimal("0.00495"), "max": Decimal("0.00735")}
        assert replayed(team, **change).end["cost"]["total_cost"] == Decimal("0.00735")


WRONG: dict[str, tuple[Json, int, str, str]] = {
    "an unknown field": ({"modle": "gpt-4o"}, 400, "invalid_value", "modle"),
    "an unknown model": ({"model": "gpt-9"}, 404, "model_not_found", "model"),
    "no model": ({"model": ""}, 400, "invalid_value", "model"),
    "turn 0": ({"from_turn": 0}, 400, "invalid_value", "from_turn"),
    "a turn that is no number": ({"from_turn": "2"}, 400, "invalid_value", "from_turn"),
    "beyond the last": ({"from_turn": 4}, 400, "invalid_value", "from_turn"),
    "to beyond the last": ({"to_turn": 4}, 400, "invalid_value", "to_turn"),
    "backwards": ({"from_turn": 2, "to_turn": 1}, 400, "invalid_value", "to_turn"),
    "an agent that is not there": ({"agents": {"max": {"instruction": "x"}}}, 400, "invalid_value", "agents.max"),
    "an unknown field of an agent": ({"agents": {"max": {"x": 1}}}, 400, "invalid_value", "agents.max.x"),
    "a wrong parameter": ({"parameters": {"max_tokens": 0}}, 400, "invalid_value", "parameters.max_tokens"),
    "the replay's own": ({"parameters": {"messages": []}}, 400, "invalid_value", "parameters.messages"),
    "wrong tools": ({"parameters": {"tools": [1]}}, 400, "invalid_value", "parameters.tools[0]"),
    "a session": ({"context": {"session": "x"}}, 400, "invalid_value", "context.session"),
    "a wrong mode": ({"context": {"mode": "on"}}, 400, "invalid_value", "context.mode"),
    "an unknown replay": ({"replay_id": "replay_1"}, 404, "replay_not_found", "replay_id"),
    "changes of a replay": ({"replay_id": "replay_1", "model": "small"}, 400, "invalid_value", "model"),
    "results for nothing": ({"tool_results": []}, 400, "invalid_value", "tool_results"),
}


def test_s11_18_what_is_wrong_is_named(team: Team) -> None:
    """§11, §7.1: nobody is asked, and nothing is stored."""
    begin(team)
    before = len(team.upstream.chats)
    path = f"/conversations/{team.conversation}/replay"
    for name, (body, status, code, param) in WRONG.items():
        answer = team.post(path, body)
        assert answer.status_code == status, f"{name}: {answer.text}"
        refused(answer, status, code, param)
    refused(team.post("/conversations/conv_nobody/replay", {}), 404, "conversation_not_found", "conversation_id")
    refused(team.gateway.post(path, json={}, key="sk-somebody-else"), 404, "conversation_not_found", "conversation_id")
    empty = team.client.post("/conversations", json={}).json()["id"]
    refused(team.post(f"/conversations/{empty}/replay", {}), 400, "invalid_value", "from_turn")
    assert len(team.upstream.chats) == before
    assert statuses(team) == ["complete"] * 3


def test_s11_18_what_was_not_answered_here_needs_a_model(team: Team) -> None:
    """§11: turns that a client brought are run anew by the model that is named."""
    chat(team, user("Old"), assistant("I said so."), user("Really?"))
    refused(team.post(f"/conversations/{team.conversation}/replay", {}), 400, "missing_required_parameter", "model")
    anew(team)
    found = replayed(team, model="small")
    assert [each["message"]["content"] for each in found.turns] == ["small on Old", "small on Really?"]


def test_s11_18_a_deletion_takes_replays_with_it(team: Team) -> None:
    """§11: of an item: what follows cannot be gone on with; of the conversation: all of it is gone."""
    begin(team, 2)
    found = replayed(team)
    items = team.items()
    team.client.delete(f"/conversations/{team.conversation}/items/{items[0]['id']}")
    refused(resumed(team, found.replay_id), 404, "replay_not_found", "replay_id")
    assert turns(team, replay_id=found.replay_id)
    team.client.delete(f"/conversations/{team.conversation}")
    refused(resumed(team, found.replay_id), 404, "conversation_not_found", "conversation_id")


def test_s11_18_a_key_stands_for_one_replay(team: Team) -> None:
    """Sent again, the same request goes on with what it began, and pays for nothing twice; with other fields it is
    refused. Keys of other conversations are others."""
    begin(team, 2)
    anew(team)
    path, key = f"/conversations/{team.conversation}/replay", {"Idempotency-Key": "once"}
    asked, names = len(team.upstream.chats), []
    for _ in range(2):
        answer = team.client.post(path, json={"from_turn": 2, "model": "gpt-4o-mini"}, headers=key)
        assert answer.text.endswith("data: [DONE]\n\n")
        names.append(set(re.findall(r"replay_[0-9a-f]{20,}", answer.text)))
    assert names[0] == names[1]
    assert [record.body["model"] for record in team.upstream.chats[asked:]] == ["gpt-4o-mini"]
    other_fields = team.client.post(path, json={"from_turn": 1}, headers=key)
    refused(other_fields, 422, "idempotency_key_mismatch", "Idempotency-Key")
    first, team.conversation = team.conversation, None
    begin(team, 2)
    assert team.conversation != first
    anew(team)
    other = team.client.post(f"/conversations/{team.conversation}/replay", json={"from_turn": 2}, headers=key)
    assert set(re.findall(r"replay_[0-9a-f]{20,}", other.text)).isdisjoint(names[0])


def test_s11_18_a_turn_whose_question_was_deleted_is_not_run_anew(team: Team) -> None:
    """§7: nothing is left that an agent could be given; the field that chooses the turns is named."""
    team.ask("max", user("Which oil?"), answer="Olive oil.")
    team.ask(claude("sarah"), answer="Or rape.")
    team.ask(claude("carol"), answer="Rape it is.")
    for item in team.items()[:2]:
        assert team.client.delete(f"/conversations/{team.conversation}/items/{item['id']}").status_code == 200
    asked = len(team.upstream.chats)
    for body in ({}, {"dry_run": True}):
        answer = team.post(f"/conversations/{team.conversation}/replay", body)
        refused(answer, 400, "invalid_value", "from_turn")
    assert len(team.upstream.chats) == asked


def test_s11_18_what_is_deleted_while_a_replay_runs_is_not_asked_again(team: Team) -> None:
    """Neither by the request that is under way, whose turn is not stored, nor by a later one."""
    begin(team)
    gate = threading.Event()
    team.upstream.reply(text="anew", gate=gate)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(team.post, f"/conversations/{team.conversation}/replay", {})
        team.upstream.wait_for_chats(4)
        for item in (team.items()[0], team.items()[4]):
            assert team.client.delete(f"/conversations/{team.conversation}/items/{item['id']}").status_code == 200
        gate.set()
        told = running.result().text
    assert "Items were deleted since this replay began" in told
    assert "[DONE]" not in told
    assert len(team.upstream.chats) == 4
    left = team.gateway.get(f"/conversations/{team.conversation}/export", key=team.token).text
    assert "question 1" not in left
    assert "question 3" not in left


def test_s11_18_another_conversations_replay_is_not_there(team: Team) -> None:
    """§11, §8: nor is another tenant's."""
    begin(team, 1)
    name = replayed(team).replay_id
    team.conversation = None
    begin(team, 1)
    refused(resumed(team, name), 404, "replay_not_found", "replay_id")
    answer: Any = team.client.get(f"/conversations/{team.conversation}/turns", params={"replay_id": name})
    refused(answer, 404, "replay_not_found", "replay_id")
