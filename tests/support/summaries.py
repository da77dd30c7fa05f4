"""A chat whose old turns are summarized, seen from outside: what was asked, what is stored, what it cost."""

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from openai import OpenAI

from gateway.core.config.settings import StorageSettings
from gateway.core.types.memory import SummarySegment
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.lookup.segments import all_segments, segment_of
from tests.support.answers import Json, conversation_of, exact, ok, there, user
from tests.support.command import gateway_command
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels
from tests.support.process import wait_until


def told(number: int) -> str:
    """A user's words that take a sixteenth of the window of `small`."""
    return f"Fact {number}: " + f"lamp {number} hangs in room {number}. " * 30


@dataclass
class Chat:
    """A conversation with one gateway."""

    gateway: GatewayProcess
    models: InternalModels
    client: OpenAI
    memory: str | None = None
    conversation: str | None = None
    answers: list[Any] = field(default_factory=list)

    def say(self, text: str, **more: Any) -> Any:
        """One more turn, with the new message alone; the answer."""
        extra: Json = {**more}
        if self.conversation is not None:
            extra["conversation"] = self.conversation
        if self.memory is not None:
            extra["context"] = {"memory": self.memory, **extra.get("context", {})}
        said: Any = [user(text)]
        answer = self.client.chat.completions.create(model="small", messages=said, extra_body=extra)
        if extra.get("store") is not False:
            self.conversation = conversation_of(answer)
        self.answers.append(answer)
        return answer

    def fill(self, segments: int = 1) -> int:
        """Talks until so many summaries are on bills; how many turns that took."""
        for number in range(200):
            if self.answers and self.billed() >= segments:
                return number
            self.say(told(number))
        raise AssertionError("no summary was made")

    def settle(self) -> None:
        """Ends the gateway, which waits for what is under way behind answers, and starts it again."""
        self.gateway.restart()

    def asked(self, number: int) -> None:
        """Waits until the summarizer was asked so often and every call is on a bill."""
        wait_until(lambda: len(self.models.summarized) >= number, f"{number} calls of the summarizer")
        wait_until(lambda: self.billed() >= number, f"the bills of {number} calls")

    def billed(self) -> int:
        """How many summarizer calls are on the conversation's bills."""
        usage = [bill["response_metadata"]["context_utilization"]["planning_usage"] for bill in self.bills()]
        return sum(each["summarizer"].get("calls", 0) for each in usage)

    def bills(self) -> list[Json]:
        """The stored completions of the conversation, numbers as they are written."""
        found: list[Json] = []
        while True:
            after = {"after": found[-1]["id"]} if found else {}
            query = {"conversation": str(self.conversation), "limit": "100", **after}
            page = exact(self.gateway.get("/chat/completions", params=query).text)
            found += page["data"]
            if not page["has_more"]:
                return found

    def read(self, path: str, **query: str) -> Json:
        """What the API tells of the conversation below its own path."""
        return ok(self.gateway.get(f"/conversations/{self.conversation}/{path}", params=query))

    def check_bills(self) -> Decimal:
        """Every figure of every bill is the sum of its parts, audit and conversation included; what summaries cost."""
        total = summaries = Decimal(0)
        for bill in self.bills():
            cost, used = bill["response_metadata"]["cost"], bill["response_metadata"]["context_utilization"]
            assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]
            assert bill["usage"]["cost"] == cost["total_cost"]
            details = bill["usage"]["cost_details"]
            assert sum(details.values()) == cost["total_cost"]
            assert details["summarizer_cost"] == used["planning_cost"]["summarizer_cost"] == cost["planning_cost"]
            assert not details["summarizer_cost"] or used["planning_usage"]["summarizer"]["calls"] == 1
            total, summaries = total + cost["total_cost"], summaries + cost["planning_cost"]
        totals = exact(self.gateway.get(f"/conversations/{self.conversation}").text)["totals"]
        assert totals["cost"]["total_cost"] == total
        assert totals["cost"]["planning_cost"] == summaries
        options = ("--config", str(self.gateway.config_path), "--conversation", str(self.conversation), "--csv")
        done = gateway_command("audit", *options, directory=self.gateway.directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return summaries

    def segments(self) -> list[SummarySegment]:
        """The conversation's segments as they are stored, the oldest first."""
        return of_conversation(there(self.gateway.config)["storage"]["url"], there(self.conversation))


def of_conversation(url: str, conversation_id: str) -> list[SummarySegment]:
    """All segments of a conversation, by their last message."""

    async def read() -> list[SummarySegment]:
        transactions = open_transactions(StorageSettings(url=url))
        try:
            rows = await transactions.run(lambda connection: all_segments(connection, conversation_id))
        finally:
            await transactions.close()
        return sorted(map(segment_of, rows.values()), key=lambda segment: segment.last)

    return asyncio.run(read())


SUMMARY: Json = {"context": {"memory": "summary", "planning": "never"}}
