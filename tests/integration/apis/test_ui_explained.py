"""One conversation and one request on the page, as a browser gets them (guarantee §13.3): what a model or a user wrote
is text, what was forwarded is rebuilt or said to be gone, and the figures are those of the bill."""

import csv
import html
import io
import re
from collections.abc import Iterator
from decimal import Decimal

import httpx
import pytest

from tests.support.answers import Json, assistant, exact, user
from tests.support.command import gateway_command
from tests.support.documents import keeper, lamps, prose
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, decision, every, plan_of
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.replaying import chat, replayed
from tests.support.team import Team
from tests.support.tool_loop import ASK, LOOP, TOOLS, result
from tests.support.web_page import PageClient, WebPage, checked

QUESTION = user("Who is the keeper of lamp 41?")


explained = shared_gateway({"context": {"planning": "auto"}, "upstream": {"unlisted": "relay"}})
"""A gateway that plans, with its page."""


@pytest.fixture
def team(explained: GatewayProcess, upstream: MockUpstream) -> Iterator[Team]:
    found = Team(explained, upstream)
    with found.client:
        yield found


class Browser(PageClient):
    """What a browser gets of the page, without scripts: each page that is read is well formed."""

    def read(self, path: str, status: int = 200) -> str:
        answer = self.get(path)
        assert answer.status_code == status, answer.text[-2000:]
        checked(answer)
        return answer.text

    def request(self, request_id: str) -> str:
        return self.read(f"/ui/requests/{request_id}")

    def conversation(self, team: Team, **query: str) -> str:
        return self.read(f"/ui/conversations/{team.conversation}?{httpx.QueryParams(query)}")

    def in_full(self, request_id: str, artifact_id: str) -> str:
        token = self.token(f"/ui/requests/{request_id}")
        answer = self.post(f"/ui/requests/{request_id}/in-full", {"csrf": token, "artifact": artifact_id})
        assert answer.status_code == 200, answer.text[-2000:]
        checked(answer)
        return answer.text


@pytest.fixture
def browser(explained: GatewayProcess) -> Iterator[Browser]:
    with Browser(explained.url) as found:
        yield found


def text_of(page: str) -> str:
    """The page as it is read: without markup, white space once."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def planned(team: Team, *attachments: Json) -> Json:
    return chat(team, QUESTION, model="small", attachments=list(attachments))


def test_s13_3_a_planned_request_tells_its_plan_its_artifacts_and_its_bill(team: Team, browser: Browser) -> None:
    lamp_text = lamps(60)
    team.upstream.handler = InternalModels(
        lambda found: plan_of(
            *(
                decision(
                    one.artifact_id,
                    "rag_extract",
                    extraction_query="keeper of lamp 41",
                    relevance_rationale="has <b>keepers</b>",
                )
                for one in found
            ),
            queries=("lamp 41 keeper",),
        )
    )
    answer = planned(team, {"title": "Lamps", "content": lamp_text}, {"title": "Tides", "content": prose(3, 2500)})
    request_id = answer["response_metadata"]["request_id"]
    page = browser.request(request_id)
    read = text_of(page)
    assert "has <b>keepers</b>" in read
    assert "<b>keepers" not in page
    assert "lamp 41 keeper" in read
    assert "You plan what another model gets to read" in read, "the planner's prompt"
    assert f"of {4096 - 512:,} tokens" in read
    marks = "".join(html.unescape(each) for each in re.findall(r"<mark>(.*?)</mark>", page, re.DOTALL))
    assert keeper(41) in marks
    assert "balances" in read
    total = exact(team.client.get(f"/chat/completions/{request_id}").text)["response_metadata"]["cost"]["total_cost"]
    assert f"{total:f}".rstrip("0") in read
    assert "added by the gateway" in read
    stored = team.client.get(f"/chat/completions/{request_id}").text
    assert "You plan what another model" not in stored, "no answer of the API has it"
    assert "You plan what another model" not in team.client.get(f"/conversations/{team.conversation}/turns/1").text

    document = browser.conversation(team)
    conversation = text_of(document)
    assert "Turn 1" in conversation
    assert "Who is the keeper of lamp 41?" in conversation
    assert "incl. internal models" in conversation
    assert WebPage(document).amounts.count(total) == 2, "of the turn, and of all"

    where = team.gateway.config_path
    options = ("audit", "--config", str(where), "--conversation", str(team.conversation), "--csv")
    audited = gateway_command(*options, directory=where.parent)
    assert audited.returncode == 0, audited.stderr
    assert sum(Decimal(row["total_cost"]) for row in csv.DictReader(io.StringIO(audited.stdout))) == total


def test_s13_3_with_it_in_full_asks_no_model_and_stores_nothing(team: Team, browser: Browser) -> None:
    lamp_text, tides = lamps(50), prose(3, 2600)
    team.upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 4"))
    answer = planned(team, {"title": "Lamps", "content": lamp_text}, {"title": "Tides", "content": tides})
    request_id = answer["response_metadata"]["request_id"]
    records = answer["response_metadata"]["context_utilization"]["artifacts_processed"]
    lamp = next(each for each in records if each["source"].endswith("Lamps"))
    assert lamp["strategy"] == "rag_extract", records
    asked = len(team.upstream.requests)
    sums = exact(team.client.get(f"/conversations/{team.conversation}").text)["totals"]
    page = browser.in_full(request_id, lamp["artifact_id"])
    read = text_of(page)
    assert "It is still not in full" not in read
    assert "Not possible:" not in read
    assert " ".join(lamp_text.split())[-200:] in read or 'shown="full"' in read
    assert len(team.upstream.requests) == asked
    assert len(models.planned) == 1
    assert exact(team.client.get(f"/conversations/{team.conversation}").text)["totals"] == sums
    without = browser.post(f"/ui/requests/{request_id}/in-full", {"artifact": lamp["artifact_id"]})
    assert without.status_code == 403


def test_s13_3_a_request_under_each_name_of_its_answer(team: Team, browser: Browser) -> None:
    team.upstream.reply(text="Ada.")
    completion = chat(team, QUESTION, model="small")
    name = completion["id"].removeprefix("chatcmpl-")
    for prefix in ("chatcmpl-", "resp_", "msg_"):
        page = browser.request(prefix + name)
        assert completion["response_metadata"]["request_id"] in page
        assert "Ada." in page
    browser.read("/ui/requests/resp_nowhere", 404)


def test_s13_3_a_tool_s_result_in_full(team: Team, browser: Browser) -> None:
    """One that is longer than the window cannot be: the page says so."""
    team.upstream.reply(message=LOOP[1])
    chat(team, ASK, model="small", tools=TOOLS, context={"planning": "never"})
    team.upstream.reply(text="Rain.")
    long = "\n\n".join(f"Day {number}: {prose(number, 200)}" for number in range(60))
    answer = chat(team, result("c1", long), model="small", tools=TOOLS, context={"planning": "never"})
    request_id = answer["response_metadata"]["request_id"]
    page = browser.request(request_id)
    assert "reduced" in text_of(page)
    record = answer["response_metadata"]["context_utilization"]["artifacts_processed"][0]
    assert record["strategy"] == "rag_extract"
    read = text_of(browser.in_full(request_id, record["artifact_id"]))
    assert "Not possible: This model's maximum context length is" in read, "it is longer than the window"


def reduced(answer: Json) -> list[Json]:
    """The artifacts of which an answer's request left something out."""
    records = answer["response_metadata"]["context_utilization"]["artifacts_processed"]
    return [
        each for each in records if each["strategy"] in ("rag_extract", "exclude") and "turns:" not in each["source"]
    ]


@pytest.mark.parametrize("kind", ["old result", "old document", "document in the question"])
def test_s13_3_what_a_window_holds_otherwise_comes_back_in_full(team: Team, browser: Browser, kind: str) -> None:
    """Results and documents of earlier turns, too, that were reduced when something else came: without a planner, and
    with the tools of then told by their names."""
    never: Json = {"model": "small", "context": {"planning": "never"}}
    text = "\n\n".join(f"Day {number}: the rain over lake {number} fell for {number} hours." for number in range(90))
    team.upstream.handler = lambda _: Reply(text="I see. " * 20)
    if kind == "old result":
        team.upstream.handler = None
        team.upstream.reply(message=LOOP[1])
        chat(team, ASK, tools=TOOLS, **never)
        team.upstream.handler = lambda _: Reply(text="I see. " * 20)
        chat(team, result("c1", text), tools=TOOLS, **never)
    elif kind == "old document":
        chat(team, user("Read this."), attachments=[{"title": "Rain", "content": text}], **never)
    more = [{"title": "Tides", "content": prose(7, 1800)}]
    question = "How long did it rain over lake 44?"
    if kind == "document in the question":
        question = f"{question}\n\n```\n{text * 2}{text[: len(text) * 9 // 20]}\n```\n\nSay it in a word."
        more = [{"title": "Tides", "content": prose(7, 700)}]
    tools: Json = {"tools": TOOLS} if kind == "old result" else {}
    answer = chat(team, user(question), attachments=more, **tools, **never)
    request_id = answer["response_metadata"]["request_id"]
    wanted = next(each for each in reduced(answer) if not each["source"].endswith("Tides"))
    read = text_of(browser.in_full(request_id, wanted["artifact_id"]))
    assert "Not possible:" not in read, read
    assert "It is still not in full" not in read, read


def test_s13_3_restored_results_and_a_moved_prefix_are_told(team: Team, browser: Browser) -> None:
    team.upstream.reply(message=LOOP[1])
    chat(team, ASK, tools=TOOLS)
    team.upstream.reply(text="It rains in Bern.")
    chat(team, result("c1", "12 degrees, rain"), tools=TOOLS)
    team.upstream.reply(text="Yes.")
    answer = chat(team, user("Sure?"))
    page = browser.request(answer["response_metadata"]["request_id"])
    assert "restored as text" in text_of(page)
    team.upstream.reply(text="Oui.")
    answer = chat(team, {"role": "system", "content": "Speak French."}, user("Vraiment?"))
    read = text_of(browser.request(answer["response_metadata"]["request_id"]))
    assert "differs from that of the previous request from message 1 on" in read
    assert "the system messages changed" in read


def test_s13_3_branches_are_a_tree(team: Team, browser: Browser) -> None:
    team.upstream.reply(text="One.")
    chat(team, user("Count"))
    team.upstream.reply(text="Two.")
    chat(team, user("Count"), assistant("One."), user("Go on"))
    team.upstream.reply(text="Zwei.")
    chat(team, user("Count"), assistant("One."), user("Go on in German"))
    team.upstream.reply(text="Eins.")
    replayed(team, from_turn=1, to_turn=1)
    page = browser.conversation(team)
    read = text_of(page)
    assert "Branches" in read
    assert "edited or regenerated" in read
    assert "replay" in read
    link = re.search(r'href="(/ui/conversations/[^"]*branch=[^"]*)"', page)
    assert link
    others = [
        text_of(browser.read(html.unescape(each))) for each in re.findall(r'href="([^"]*branch=msg_[^"]*)"', page)
    ]
    assert any("Go on in German" not in each and "You are looking at another branch" in each for each in others)


def test_s13_3_what_is_not_stored_is_said_with_its_reason(team: Team, browser: Browser) -> None:
    team.upstream.reply(text="Secret answer.")
    steps = [each for _ in range(12) for each in LOOP[1:3]]
    body = {"model": "gpt-4o", "messages": [user("Secret question"), *steps], "store": False}
    request_id = team.post("/chat/completions", body).json()["response_metadata"]["request_id"]
    read = text_of(browser.request(request_id))
    assert "No content is stored" in read
    assert "Secret" not in read
    assert "The bill remains" in read
    assert "12 unchanged" in read
    assert "balances" in read

    team.upstream.reply(text="Gone soon.")
    first = chat(team, user("A question"))["response_metadata"]["request_id"]
    team.upstream.reply(text="More.")
    second = chat(team, user("Another question"))["response_metadata"]["request_id"]
    item = team.items()[0]["id"]
    assert team.client.delete(f"/conversations/{team.conversation}/items/{item}").status_code == 200
    assert "An item of the conversation was deleted since" in text_of(browser.request(second))
    assert "An item was deleted" in text_of(browser.conversation(team))
    assert team.client.delete(f"/conversations/{team.conversation}").status_code == 200
    assert "Its conversation was deleted" in text_of(browser.request(first))
    browser.read(f"/ui/conversations/{team.conversation}", 404)


def test_s13_3_a_message_of_a_megabyte_is_cut_and_can_be_saved(team: Team, browser: Browser) -> None:
    words = "".join(f"line {number} <b>\n" for number in range(70_000))
    assert len(words) > 1_000_000
    team.upstream.reply(text="Long.")
    answer = chat(team, user(words), model="bench")
    request_id = answer["response_metadata"]["request_id"]
    page = browser.request(request_id)
    assert len(page) < 100_000
    assert "more characters" in text_of(page)
    link = re.search(r'href="([^"]*of=said&amp;number=0)"', page)
    assert link
    saved = browser.get(html.unescape(link[1]))
    assert saved.text == words
    assert saved.headers["content-type"] == "text/plain; charset=utf-8"
    assert saved.headers["x-content-type-options"] == "nosniff"
    assert saved.headers["content-disposition"].startswith("attachment")
    assert len(browser.conversation(team)) < 60_000


def test_s13_3_what_is_not_there_is_not_found(team: Team, browser: Browser) -> None:
    made = team.post("/conversations", {}).json()["id"]
    browser.read(f"/ui/conversations/{made}")
    for path in (
        f"conversations/{made}?turn=3",
        f"conversations/{made}?branch=msg_nowhere",
        "conversations/conv_nowhere",
        "requests/req_nowhere",
        "requests/x%00y",
    ):
        browser.read(f"/ui/{path}", 404)
