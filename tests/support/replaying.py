"""Replays as their client asks for them, read event by event."""

from collections.abc import Iterable
from typing import Any

import httpx

from tests.support.answers import Json, exact, exactly
from tests.support.team import Team


class Replaying:
    """The events of one replay, checked on the way: data alone, `[DONE]` or an error at the end."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
        lines = answer.text.removesuffix("\n\n").split("\n\n")
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        self.done = lines[-1] == "data: [DONE]"
        self.events: list[Json] = [exact(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]
        assert self.done != ("error" in self.events[-1])

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event.get("object") == f"conversation.replay{kind}"]

    @property
    def replay_id(self) -> str:
        return str(self.of("")[0]["replay_id"])

    @property
    def turns(self) -> list[Json]:
        return self.of(".turn")

    @property
    def end(self) -> Json:
        return self.events[-1]

    def text(self, turn: int) -> str:
        return "".join(event["content"] for event in self.of(".delta") if event["turn"] == turn)


def replayed(team: Team, **body: Any) -> Replaying:
    return Replaying(team.post(f"/conversations/{team.conversation}/replay", body))


def chat(team: Team, *messages: Json, **fields: Any) -> Json:
    """A chat in the team's conversation, numbers as they are written."""
    body: Json = {"model": "gpt-4o", "messages": list(messages), **fields}
    if team.conversation is not None:
        body["conversation"] = team.conversation
    answer = team.post("/chat/completions", body)
    assert answer.status_code == 200, answer.text
    team.conversation = answer.json()["conversation"]["id"]
    found: Json = exact(answer.text)
    return found


def said(team: Team) -> list[str]:
    """The texts of the current branch."""
    return [str(item["content"][0]["text"]) for item in team.items() if item["type"] == "message"]


def turns(team: Team, **query: str) -> list[Json]:
    answer = team.client.get(f"/conversations/{team.conversation}/turns", params={"order": "asc", **query})
    assert answer.status_code == 200, answer.text
    found: list[Json] = exact(answer.text)["data"]
    return found


def turn(team: Team, number: int, **query: str) -> Json:
    return exactly(team.client.get(f"/conversations/{team.conversation}/turns/{number}", params=query))


def texts(messages: Iterable[Json]) -> list[str]:
    return [str(message["content"]) for message in messages]


def refused(answer: httpx.Response, status: int, code: str, param: str | None) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error
