"""Who asked, as bills tell it, and `gateway purge --user` beside a running server (guarantee §13.6, §13.7)."""

import csv
import io
import itertools
import json
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from tests.support.answers import Json, user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

NUMBERS = itertools.count()


class Office:
    """People who ask over one key, and the operator of the gateway."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.gateway, self.upstream = gateway, upstream
        self.sdk = OpenAI(base_url=gateway.base_url, api_key=f"sk-office-{next(NUMBERS)}", max_retries=0)

    def ask(self, name: str, text: str, conversation: str | None = None, **more: Any) -> str:
        """Asks in that person's name; the conversation's id."""
        body: Json = {**more, **({"conversation": conversation} if conversation else {})}
        answer = self.sdk.chat.completions.create(model="gpt-4o", messages=[user(text)], user=name, extra_body=body)
        found: Any = answer.model_extra
        return str(found["conversation"]["id"]) if "conversation" in found else ""

    def run(self, *words: str) -> tuple[int, str]:
        """Exit status and words of a command."""
        config = ("--config", str(self.gateway.config_path))
        done = gateway_command(words[0], *config, *words[1:], directory=self.gateway.directory)
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def bills(self, *options: str) -> list[str]:
        """The user of each bill."""
        status, text = self.run("audit", "--csv", *options)
        assert status == 0, text
        return [row["user"] for row in csv.DictReader(io.StringIO(text, newline=""))]

    def counted(self, name: str) -> int:
        """How many requests of a user the sums of costs count."""
        status, text = self.run("costs", "--json", "--user", name)
        assert status == 0, text
        return int(json.loads(text)["total"]["requests"])


@pytest.fixture
def office(start_gateway: GatewayFactory, storage_url: str, upstream: MockUpstream) -> Office:
    return Office(start_gateway({"storage": {"url": storage_url}}), upstream)


def test_s13_6_bills_have_a_digest_and_are_found_by_the_name(
    start_gateway: GatewayFactory, storage_url: str, upstream: MockUpstream
) -> None:
    """§13.6: the upstream gets the name, conversations are recognised by it, the storage does not hold it."""
    settings = {"storage": {"url": storage_url}, "accounting": {"users": "hashed"}}
    office = Office(start_gateway(settings), upstream)
    conversation = office.ask("ann", "The lamp.")
    assert upstream.requests[-1].body["user"] == "ann"
    office.ask("bob", "The ferry.", store=False)
    ann, bob = office.bills()
    assert (len(ann), len(bob)) == (45, 45)
    assert ann != bob
    assert office.bills("--user", "ann") == office.bills("--user", ann) == [ann]
    office.upstream.reply(text="It is lit.")
    begun = office.ask("ann", "Another lamp.")
    said: Any = [user("Another lamp."), {"role": "assistant", "content": "It is lit."}, user("More.")]
    answer = office.sdk.chat.completions.create(model="gpt-4o", messages=said, user="ann")
    assert (answer.model_extra or {})["conversation"]["id"] == begun != conversation
    assert len(office.bills("--user", "ann")) == 3
    assert "all 4 rows balance" in office.run("audit")[1]


def test_s13_7_what_a_person_said_goes_and_the_bills_stay(office: Office) -> None:
    """§13.7: conversations and remembered things; bills of that user add up as before, under a digest."""
    thing = {"type": "workflow", "id": "wf_12", "name": "Task Management"}
    mine = office.ask("ann", "The lamp.", memory={"remember": [thing], "scope": "user"})
    other = office.ask("bob", "The ferry.")
    office.ask("ann", "Not kept.", store=False)
    status, text = office.run("purge", "--user", "ann", "--dry-run")
    assert (
        status,
        "1 conversation: would be deleted\n1 remembered thing: would be deleted\n2 bills: would" in text,
    ) == (0, True), text
    office.sdk.conversations.retrieve(mine)
    status, text = office.run("purge", "--user", "ann")
    assert (
        status,
        text.startswith("1 conversation: deleted\n1 remembered thing: deleted\n2 bills: stay, of user_"),
    ) == (0, True), text
    with pytest.raises(NotFoundError):
        office.sdk.conversations.retrieve(mine)
    office.sdk.conversations.retrieve(other)
    office.ask("ann", "Update my task workflow.", memory={"scope": "user"})
    assert "wf_12" not in str(office.upstream.requests[-1].body)
    digest = text.rsplit(" ", 1)[-1].strip()
    assert sorted(office.bills()) == sorted(["bob", digest, digest, "ann"])
    assert len(office.bills("--user", "ann")) == office.counted("ann") == 3
    assert office.counted(digest) == 2
    assert "all 4 rows balance" in office.run("audit", "--by", "user")[1]


@pytest.mark.chaos
def test_s13_7_what_expires_is_of_nobody_in_audit_and_costs(office: Office) -> None:
    for name in ("ann", "ann", "bob"):
        office.ask(name, "The lamp.")
    office.ask("ann", "Not kept.", store=False)
    assert len(office.bills("--user", "ann")) == office.counted("ann") == 3
    assert office.run("purge", "--older-than", "0d")[0] == 0
    assert len(office.bills("--user", "ann")) == office.counted("ann") == 1


def test_s13_7_of_a_conversation_with_others_the_persons_turns_go(office: Office) -> None:
    """§13.7: also where the server has just read it; the others go on."""
    document = {"content": "Ann's paper: violet. " * 9, "title": "ann.txt"}
    name = office.ask("bob", "The ferry leaves at nine.")
    office.ask("ann", "The lamp is violet.", name, attachments=[document])
    office.ask("bob", "And back?", name)
    assert "violet" in str(office.upstream.requests[-1].body)
    status, text = office.run("purge", "--user", "ann")
    assert status == 0
    assert "0 conversations: deleted\n2 messages and 1 document in 1 conversation with others: deleted\n" in text
    office.ask("bob", "At ten?", name)
    sent = str(office.upstream.requests[-1].body)
    assert "violet" not in sent
    assert all(words in sent for words in ("The ferry leaves", "And back?", "At ten?"))
    assert office.run("purge", "--user", "ann", "--whole")[0] == 0
    with pytest.raises(NotFoundError):
        office.sdk.conversations.retrieve(name)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--user", "ann", "--older-than", "1d"), "--user and --older-than: say one of them"),
        (("--user", " "), "--user names nobody"),
        (("--whole", "--older-than", "1d"), "--whole is for --user"),
        (("--older-than", "2999-01-01"), "--older-than: lies in the future, where all conversations are older"),
    ],
)
def test_s13_7_what_cannot_be_meant_is_refused(office: Office, options: tuple[str, ...], told: str) -> None:
    assert office.run("purge", *options) == (2, f"{told}\n")
