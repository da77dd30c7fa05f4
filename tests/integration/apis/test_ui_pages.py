"""The pages Conversations and Health, and what every page is like (guarantee §13.2)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import ok, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import free_port
from tests.support.scraping import scrape, total
from tests.support.web_page import SECURE_HEADERS, PageClient, checked

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</bdi></a></th><h1>not a heading</h1>",
    "[click](javascript:alert(1)) {{ 7*7 }} {% raw %}",
    "\u202egnp.exe \u2066isolated \x07\x1b[31m red",
    "&lt;b&gt; &amp; \U0001f600",
]


@pytest.fixture
def browser(one_gateway: GatewayProcess) -> Iterator[PageClient]:
    with PageClient(one_gateway.url) as opened:
        yield opened


def chat(gateway: GatewayProcess, text: str, **more: Any) -> str:
    answer = ok(gateway.post("/chat/completions", json={"model": "small", "messages": [user(text)], **more}))
    return str(answer["conversation"]["id"])


def test_s13_2_what_was_written_is_text(one_gateway: GatewayProcess, browser: PageClient) -> None:
    """Markup, templates, signs that turn the direction, controls: in questions, users, sessions and searches."""
    for number, text in enumerate(HOSTILE):
        chat(one_gateway, text, user=text, context={"session": str(number) + "".join(filter(str.isprintable, text))})
    page = browser.page("/ui/conversations")
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert "\x1b" not in page.text
    assert page.tags["script"] == 2, "those of the page itself"
    assert page.tags["img"] == 1
    assert not [link for link in page.links if not link.startswith(("/ui", "#"))]
    document = browser.get("/ui/conversations").text
    assert re.search(r"<bdi[^>]*>\u202egnp", document), "isolated: what stands beside it keeps its direction"
    for text in HOSTILE:
        found = browser.client.get("/ui/conversations", params={"text": text, "user": text})
        assert found.status_code == 200
        checked(found)


def test_s13_2_conversations_are_found(one_gateway: GatewayProcess, browser: PageClient) -> None:
    """By a part of the first question in whichever case, by id and its beginning, by session, user and model."""
    mine = chat(
        one_gateway, "Where is the QUINCE kept?", user="zoe", context={"session": "desk of zoe"}, model="gpt-4o"
    )
    other = chat(one_gateway, "Where is the medlar kept?")
    for search in (
        "text=quince",
        f"id={mine}",
        f"id={mine[:-3]}",
        "session=desk+of+zoe",
        "user=zoe",
        "user=zoe&model=gpt-4o",
    ):
        page = browser.page(f"/ui/conversations?{search}")
        assert f"/ui/conversations/{mine}" in page.links, search
        assert f"/ui/conversations/{other}" not in page.links, search
    assert "No conversation matches" in browser.page("/ui/conversations?text=nobody+asked+this").text
    for bad in ("older=x", "newer=1", "older=99999999999999999999.a", f"text={'x' * 301}"):
        refused = browser.get(f"/ui/conversations?{bad}")
        assert refused.status_code == 400, bad
        checked(refused)


def test_s13_2_sums_are_exact_and_say_what_they_lack(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    gateway = start_gateway()
    upstream.reply(text="x", usage={"prompt_tokens": 1234, "completion_tokens": 7, "total_tokens": 1241})
    chat(gateway, "at a price")
    with PageClient(gateway.url) as browser:
        page = browser.page("/ui/conversations")
        assert page.amounts.count(Decimal("0.001248")) == 2, "of the conversation, and of all: 1234 at 1e-6, 7 at 2e-6"
        assert page.text.count("$0.00125") == 2, "on screen they are short"
        assert "1,234" in page.text
        chat(gateway, "at a price that nobody knows", model="bench")
        page = browser.page("/ui/conversations")
        assert "≥ $0.00124" in page.text.split("Last active")[0], "at least so much: it is not rounded up"
        assert Decimal("0.001248") in page.amounts
        assert "unknown" in page.text


def test_s13_2_health_tells_what_is_degraded(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """An upstream that gives errors until it answers again; a request that was wrong says nothing of it."""
    gateway = start_gateway()
    with PageClient(gateway.url) as browser:
        page = browser.page("/ui/health")
        assert "No degraded parts" in page.text
        assert re.search(r"Processes with requests in progress\s*0\b", page.text), "idle ones are not known to others"
        body = {"model": "small", "messages": [user("hello")]}
        upstream.reply(status=400)
        assert gateway.post("/chat/completions", json=body).status_code == 400
        assert "No degraded parts" in browser.page("/ui/health").text
        upstream.reply(status=503)
        assert gateway.post("/chat/completions", json=body).status_code == 503
        page = browser.page("/ui/health")
        assert "small is failing" in page.text
        assert "upstream_503" in page.text
        assert gateway.post("/chat/completions", json=body).status_code == 200
        page = browser.page("/ui/health")
        assert "No degraded parts" in page.text
        assert "upstream_503" in page.text, "the last error stays to be seen"
        assert "SQLite" in page.text


def test_s13_2_health_tells_that_the_cache_does_not_answer(start_gateway: GatewayFactory) -> None:
    """Since when that was noticed; it is asked when the page is."""
    gateway = start_gateway({"cache": {"url": f"redis://127.0.0.1:{free_port()}"}})
    with PageClient(gateway.url) as browser:
        page = browser.page("/ui/health")
        assert "Cache not responding" in page.text
        since = re.search(r"not more expensive\s*(\S+ \S+)", page.text)
        assert since is not None
        noticed = datetime.strptime(since.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        assert timedelta(0) <= datetime.now(UTC) - noticed < timedelta(minutes=1)
        assert since.group(1) in browser.page("/ui/health").text, "not since it was looked at last"


def test_s13_2_faults_are_pages_for_a_person(one_gateway: GatewayProcess, browser: PageClient) -> None:
    """With the headers of every page, and the id under which the log has more."""
    for path, status in (("/ui/nothing", 404), ("/ui/static/none.css", 404), ("/ui/conversations?older=x", 400)):
        answer = browser.get(path)
        assert answer.status_code == status
        checked(answer)
        line = one_gateway.logged(answer.headers["x-request-id"])
        assert (line["path"], line["status"]) == (path.partition("?")[0], status)
    assert browser.client.put("/ui/conversations").status_code == 405
    assert browser.client.head("/ui/conversations").status_code == 200
    large = browser.client.post("/ui/login", content=b"x" * 100_000, headers={"sec-fetch-site": "same-origin"})
    assert large.status_code == 413
    checked(large)


def test_s13_2_files_are_kept_for_good(one_gateway: GatewayProcess, browser: PageClient) -> None:
    """Their names hold their digests."""
    document = browser.get("/ui/conversations").text
    files = sorted(set(re.findall(r'"(/ui/static/[^"]+)"', document)))
    assert [file.rpartition(".")[2] for file in files] == ["js", "svg", "css", "js"]
    for file in files:
        answer = browser.get(file)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert {name: answer.headers.get(name) for name in SECURE_HEADERS} == SECURE_HEADERS
    for path in ("/ui/static/../page.py", "/ui/static/%2e%2e/page.py", "/ui/static/htmx.LICENSE.txt", "/ui/static/"):
        assert httpx.get(one_gateway.url + path, trust_env=False).status_code == 404


def test_s13_2_the_page_is_counted_under_one_name(one_gateway: GatewayProcess, browser: PageClient) -> None:
    browser.get("/ui/conversations")
    browser.get("/ui/nothing")
    samples = scrape(one_gateway)
    assert total(samples, "gateway_requests_total", endpoint="/ui", status="200") >= 1
    assert total(samples, "gateway_requests_total", endpoint="/ui", status="404") >= 1
    assert not [labels for labels in map(str, samples) if "/ui/" in labels]


def test_s13_2_the_page_stays_while_the_storage_is_away(start_gateway: GatewayFactory) -> None:
    gateway = start_gateway()
    with PageClient(gateway.url) as browser:
        assert browser.get("/ui/conversations").status_code == 200
        for file in gateway.directory.glob("gateway.db*"):
            file.unlink()
        refused = browser.get("/ui/conversations")
        assert refused.status_code == 503
        checked(refused)
        page = checked(browser.get("/ui/health"))
        assert "Not serving requests" in page.text
