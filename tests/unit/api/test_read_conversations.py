"""A conversation as it is read on the page, and two requests beside each other (guarantee §13.3): questions, answers,
tools and failures with the figures of their bills; Markdown that does nothing; walls between tenants."""

import html
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, exact, user
from tests.support.documents import prose as written
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.replaying import chat
from tests.support.team import Team
from tests.support.tool_loop import ASK, LOOP, TOOLS, result
from tests.support.web_page import PageClient, WebPage, checked

MARKDOWN = """# The answer

It is **bold**, `code` and a [link](https://elsewhere.invalid/page "a title").

- one
- two

| a | b |
|:--|--:|
| 1 | 2 |

```python
print("<b>")
```
"""
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) [click](JaVaScRiPt&#58;alert(1)) [click](data:text/html,<script>alert(1)</script>)",
    "[click](vbscript:x) <javascript:alert(1)> [a]: javascript:alert(1)\n\n[a]",
    '![picture](https://elsewhere.invalid/p.png "onload=x") ![x](//elsewhere.invalid/p)',
    '[quote](https://elsewhere.invalid/"onmouseover="alert(1)) <https://elsewhere.invalid/?"><script>alert(1)</script>>',
    '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "| <b onclick=x> | b |\n|:-:|---|\n| </table><script>alert(1)</script> | ![p](https://elsewhere.invalid) |",
    "</div></main></body><form action=https://elsewhere.invalid><input name=key>",
    "# heading\n\n<style>*{display:none}</style>\n\n<iframe src=https://elsewhere.invalid></iframe>",
    "> " * 300 + "deep " + "[" * 2000 + "*" * 1000,
    "\u202egnp.exe\u202c \x1b[31mred\x00",
]


@pytest.fixture
def team(one_gateway: GatewayProcess, upstream: MockUpstream) -> Iterator[Team]:
    found = Team(one_gateway, upstream)
    with found.client:
        yield found


@pytest.fixture
def browser(one_gateway: GatewayProcess) -> Iterator[PageClient]:
    with PageClient(one_gateway.url) as found:
        yield found


def document(browser: PageClient, path: str) -> str:
    """A page that is there and well formed."""
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text[-2000:]
    checked(answer)
    return answer.text


def conversation(browser: PageClient, team: Team, query: str = "") -> str:
    return document(browser, f"/ui/conversations/{team.conversation}{query}")


def bill(team: Team, answer: Json) -> Json:
    name = answer["response_metadata"]["request_id"]
    found: Json = exact(team.client.get(f"/chat/completions/{name}").text)["response_metadata"]
    return found


def read(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_s13_3_answers_are_read_as_they_were_written(team: Team, browser: PageClient) -> None:
    team.upstream.reply(text=MARKDOWN)
    answer = chat(team, user("What is *this*?\nAnd that?"))
    page = conversation(browser, team)
    for piece in ("<em>this</em>", "<strong>bold</strong>", "<code>code</code>", "<li><bdi>one</bdi></li>"):
        assert piece in page
    assert "<h4><bdi>The answer</bdi></h4>" in page, "below the headings of the page"
    assert '<th scope="col"><bdi>a</bdi></th>' in page
    assert "print(&quot;&lt;b&gt;&quot;)" in page
    assert "link (https://elsewhere.invalid/page)" in read(page), "where it would lead is told"
    assert 'href="https://elsewhere' not in page
    found, told = WebPage(page), bill(team, answer)
    assert found.amounts.count(told["cost"]["total_cost"]) == 2, "of the turn, and of all"
    assert f"of {told['context_utilization']['budget_tokens']:,} tokens" in read(page)
    assert re.search(r"Latency \d", read(page))


def test_s13_3_tools_are_folded_into_the_turn(team: Team, browser: PageClient) -> None:
    team.upstream.reply(message=LOOP[1])
    chat(team, ASK, tools=TOOLS)
    team.upstream.reply(text="It rains in Bern.")
    chat(team, result("c1", "12 degrees, <b>rain</b>"), tools=TOOLS)
    page = conversation(browser, team)
    assert page.count('class="card turn"') == 1, "a tool loop is one turn"
    folded = re.findall(r'<details class="folded">.*?</details>', page, re.DOTALL)
    (call,) = [each for each in folded if "Tool call" in each]
    name = LOOP[1]["tool_calls"][0]["function"]["name"]
    assert name in call
    assert "12 degrees, &lt;b&gt;rain" in call
    assert "It rains in Bern." in re.sub(r'<details class="folded">.*?</details>', "", page, flags=re.DOTALL)
    assert "Request 1" in read(page)
    assert "Request 2" in read(page)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_s13_3_markdown_does_nothing(team: Team, browser: PageClient, text: str) -> None:
    team.upstream.reply(text=text)
    answer = chat(team, user(text))
    name = answer["response_metadata"]["request_id"]
    for path in (f"conversations/{team.conversation}", f"requests/{name}", f"compare?a={name}&b={name}"):
        page = document(browser, f"/ui/{path}")
        found = WebPage(page)
        assert found.tags["script"] == 2, "those of the page itself"
        assert (found.tags["img"], found.tags["iframe"], found.tags["style"]) == (1, 0, 0)
        assert not [each for each in found.links if not each.startswith(("/ui", "#", "?"))]
        assert not re.search(r"<[^>]*\s(on\w+|srcset|formaction)=", page)
        assert "\x1b" not in page
        for each in re.finditer("\u202e", page):
            before = page[: each.start()]
            assert before.rfind("<bdi") > before.rfind("</bdi>"), "a mark of direction is isolated"


def test_s13_3_failed_requests_stand_where_they_failed(team: Team, browser: PageClient) -> None:
    team.upstream.reply(text="One.")
    chat(team, user("Count"))
    team.upstream.reply(status=400, json={"error": {"message": "no", "type": "invalid_request_error"}})
    body: Json = {"model": "gpt-4o", "messages": [user("And on?")], "conversation": team.conversation}
    failed = team.post("/chat/completions", body)
    assert failed.status_code == 400
    team.upstream.reply(text="Two.")
    chat(team, user("Go on"))
    page = conversation(browser, team)
    name = failed.headers["x-request-id"]
    first, second = page.index('id="turn-1"'), page.index('id="turn-2"')
    assert first < page.index(f"/ui/requests/{name}") < second, "between the turns that it failed between"
    assert "(HTTP 400): no" in read(page), "in the upstream's own words"


def test_s13_3_an_answer_that_broke_off_says_why(team: Team, browser: PageClient) -> None:
    team.upstream.reply(text="Half of it is here", cut_after=3)
    body: Json = {"model": "gpt-4o", "messages": [user("Tell me")], "stream": True}
    with team.client.stream("POST", "/chat/completions", json=body) as answer:
        team.conversation = re.findall(r"conv_[0-9a-f]+", "".join(answer.iter_text()))[0]
    page = read(conversation(browser, team))
    assert "partial" in read(document(browser, f"/ui/requests/{answer.headers['x-request-id']}"))
    assert "partial" in page
    assert "Ended with an error: upstream" in page


def test_s13_3_a_conversation_that_only_failed_says_so(team: Team, browser: PageClient) -> None:
    made = team.post("/conversations", {}).json()["id"]
    team.upstream.reply(status=400, json={"error": {"message": "no", "type": "invalid_request_error"}})
    body: Json = {"model": "gpt-4o", "messages": [user("Fail")], "conversation": made}
    failed = team.post("/chat/completions", body)
    page = document(browser, f"/ui/conversations/{made}")
    assert f"/ui/requests/{failed.headers['x-request-id']}" in page
    assert "Request failed:" in read(page)


def test_s13_3_a_request_leads_to_its_turn_wherever_that_stands(team: Team, browser: PageClient) -> None:
    """On the current branch that goes on from it, on one that was left, and where nothing was ever answered."""

    def leads_to(request_id: str) -> str:
        links = WebPage(document(browser, f"/ui/requests/{request_id}")).links
        (link,) = [each for each in links if each.startswith(f"/ui/conversations/{team.conversation}")]
        path, _, anchor = link.partition("#")
        page = document(browser, path)
        (turn,) = re.findall(rf'<li class="card turn[^"]*" id="{anchor}">.*?</li>', page, re.DOTALL)
        return f"{'other ' * ('another branch' in page)}{read(turn)}"

    team.conversation = team.post("/conversations", {}).json()["id"]
    team.upstream.reply(status=400, json={"error": {"message": "no", "type": "invalid_request_error"}})
    body: Json = {"model": "gpt-4o", "messages": [user("It fails")], "conversation": team.conversation}
    failed = team.post("/chat/completions", body).headers["x-request-id"]
    assert "It fails" in leads_to(failed)
    one = chat(team, user("One"))["response_metadata"]["request_id"]
    two = chat(team, user("Two"))["response_metadata"]["request_id"]
    resent = [user("One"), {"role": "assistant", "content": "echo: One"}, user("Another")]
    other = chat(team, *resent)["response_metadata"]["request_id"]
    assert "Another" in leads_to(other)
    assert not leads_to(one).startswith("other")
    assert leads_to(two).startswith("other")
    assert "Two" in leads_to(two)
    assert leads_to(failed).startswith("other")


def test_s13_3_pages_of_turns_have_each_once_while_it_goes_on(team: Team, browser: PageClient) -> None:
    """By the turn with which a page begins or ends: what is said meanwhile moves nothing."""
    made = team.post("/conversations", {}).json()["id"]
    team.conversation = made

    def add(numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, 10):
            items = [
                {"type": "message", "role": role, "content": f"{word} number {n}."}
                for n in range(start, min(numbers.stop, start + 10))
                for role, word in (("user", "Question"), ("assistant", "Answer"))
            ]
            assert team.post(f"/conversations/{made}/items", {"items": items}).status_code == 200

    add(range(45))
    seen: list[int] = []
    page = conversation(browser, team)
    assert "Turns 26 to 45 of 45" in read(page)
    while True:
        numbers = [int(each) for each in re.findall(r"Answer number (\d+)\.", page)]
        assert numbers == [int(each) for each in re.findall(r"Question number (\d+)\.", page)]
        seen = numbers + seen
        older = re.search(r'rel="next" href="([^"]+)"', page)
        if older is None:
            break
        if len(seen) == 20:
            add(range(45, 48))
        page = document(browser, html.unescape(older[1]))
    assert seen == list(range(45))
    newer = re.search(r'rel="prev" href="([^"]+)"', page)
    assert newer
    assert "Question number 5." in document(browser, html.unescape(newer[1]))
    assert 'id="turn-3"' in conversation(browser, team, "?turn=3")
    for query in ("?before=msg_nowhere", "?after=msg_nowhere", "?before=x%00y", "?turn=0", "?turn=49", "?turn=x"):
        assert browser.get(f"/ui/conversations/{made}{query}").status_code == 404, query


def test_s13_3_a_long_tool_loop_is_told_in_short(team: Team, browser: PageClient) -> None:
    made = team.post("/conversations", {}).json()["id"]
    team.conversation = made
    items: list[Json] = [{"type": "message", "role": "user", "content": "Do it all."}]
    for n in range(40):
        call = {"type": "function_call", "call_id": f"c{n}", "name": "step", "arguments": f'{{"n": {n}}}'}
        items += [call, {"type": "function_call_output", "call_id": f"c{n}", "output": f"done {n}"}]
    for start in range(0, len(items), 20):
        added = team.post(f"/conversations/{made}/items", {"items": items[start : start + 20]})
        assert added.status_code == 200, added.text
    page = conversation(browser, team)
    assert "31 more messages of this turn are not shown here" in read(page)
    assert "done 39" in page
    assert "done 20" in page
    assert "done 10" not in page


def test_s13_3_two_requests_side_by_side_have_the_figures_of_their_bills(team: Team, browser: PageClient) -> None:
    team.upstream.reply(text="The *first* answer.")
    one = chat(team, user("The same question"))
    team.upstream.reply(text="The second answer.")
    other = chat(team, user("Another question"), model="small")
    a, b = (each["response_metadata"]["request_id"] for each in (one, other))
    page = document(browser, f"/ui/compare?a={a}&b={b}")
    amounts = WebPage(page).amounts
    for each in (one, other):
        told = bill(team, each)
        assert told["cost"]["total_cost"] in amounts
        assert f"{told['usage']['prompt_tokens']:,} in, {told['usage']['completion_tokens']:,} out" in read(page)
        assert f"of {told['context_utilization']['budget_tokens']:,} tokens" in read(page)
    assert "The <em>first</em> answer." in page
    assert "The second answer." in page
    assert "only in B" in read(page)
    assert page.count("The stored figures match") == 2
    assert "Compare" in document(browser, "/ui/compare"), "a form where the requests are not named"
    for query in (f"a={a}&b=req_nowhere", f"a=x%00&b={b}"):
        assert browser.get(f"/ui/compare?{query}").status_code == 404
    assert f"/ui/compare?a={a}&amp;b={b}" in conversation(browser, team)


def test_s13_3_a_dry_run_with_another_model_asks_nobody(team: Team, browser: PageClient) -> None:
    team.upstream.reply(text="An answer.")
    answer = chat(team, user("A question " + written(1, 3000)))
    name = answer["response_metadata"]["request_id"]
    asked = len(team.upstream.requests)
    path = f"/ui/requests/{name}/replay"
    token = browser.token(f"/ui/requests/{name}")
    told = browser.post(path, {"csrf": token, "model": "small"})
    assert told.status_code == 200, told.text
    checked(told)
    assert "for small , in that model's own window" in read(told.text)
    assert str(f"{answer['response_metadata']['context_utilization']['tokens_used']:,}") in read(told.text)
    assert len(team.upstream.requests) == asked
    assert browser.post(path, {"csrf": token, "model": "nobody's"}).status_code == 404
    assert browser.post(path, {"model": "small"}).status_code == 403


def test_s13_3_a_loss_is_a_loss(module_start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Where a planner cost more than it saved, the turn, the conversation and the request say so."""
    gateway = module_start_gateway({"context": {"planning": "always"}})
    from tests.support.internal_models import InternalModels, every

    team = Team(gateway, upstream)
    upstream.handler = InternalModels(every("include_full"))
    with team.client, PageClient(gateway.url) as browser:
        answer = chat(team, user("What of it?"), attachments=[{"title": "Tides", "content": written(3, 6000)}])
        net = bill(team, answer)["economics"]["net_saving"]
        assert Decimal(net) < 0
        name = answer["response_metadata"]["request_id"]
        for path in (f"conversations/{team.conversation}", f"requests/{name}"):
            page = document(browser, f"/ui/{path}")
            assert Decimal(net) in WebPage(page).amounts
            assert "Net loss" in read(page)
            assert re.search(r'class="figure money loss"[^>]*>-&lt;?\$|class="figure money loss"[^>]*>-\$', page)


def test_s13_3_walls_between_tenants(module_start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    keys: list[Any] = [
        {"key": "sk-tenant-a-1234", "tenant": "a", "roles": ["user", "viewer"]},
        {"key": "sk-tenant-b-1234", "tenant": "b", "roles": ["user", "viewer"]},
        {"key": "sk-admin-of-all1", "tenant": "ops", "roles": ["admin"]},
    ]
    gateway = module_start_gateway({"auth": {"keys": keys}})
    upstream.handler = lambda _: Reply(text="Hello.")
    names, conversations = {}, {}
    for tenant in ("a", "b"):
        team = Team(gateway, upstream)
        team.client.headers["authorization"] = f"Bearer sk-tenant-{tenant}-1234"
        with team.client:
            answer = chat(team, user(f"Of tenant {tenant}"))
            names[tenant], conversations[tenant] = answer["response_metadata"]["request_id"], team.conversation
    for key, status in (("sk-tenant-b-1234", 404), ("sk-admin-of-all1", 200)):
        with PageClient(gateway.url) as browser:
            assert browser.log_in(key).status_code == 303
            pairs = ((names["a"], names["b"]), (names["b"], names["a"]), (names["a"], names["a"]))
            for a, b in pairs:
                found = browser.get(f"/ui/compare?a={a}&b={b}")
                assert found.status_code == status
                assert ("Of tenant a" in found.text) == (status == 200)
            token = browser.token("/ui/conversations")
            replay = browser.post(f"/ui/requests/{names['a']}/replay", {"csrf": token, "model": "small"})
            assert replay.status_code == status
            assert browser.get(f"/ui/requests/{names['a']}").status_code == status
            page = browser.get(f"/ui/conversations/{conversations['a']}")
            assert page.status_code == status
            if status == 200:
                assert "Continue in Try it" not in page.text, "an admin's own tenant is another one"
            mine = browser.get(f"/ui/conversations/{conversations['b']}").text
            assert ("Continue in Try it" in mine) == (status == 404)
