"""`/ui/try` as a person uses it: with a script, without one, by the keyboard, on a small screen."""

import json
import re
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.browser.conftest import Opening
from tests.browser.watched import NARROW, Watched
from tests.browser.world import World
from tests.support import worked_example
from tests.support.process import wait_until

pytestmark = pytest.mark.browser
QUESTION = "What does the contract say of order 4411?"
CONTRACT: Any = {"name": "contract.md", "mimeType": "text/markdown", "buffer": worked_example.contract().encode()}


def ask(page: Watched, text: str) -> None:
    """Enters a question and sends it."""
    page.page.fill("#try-message", text)
    page.page.click("#try-send")


def answered(page: Watched) -> str:
    """The last answer, once it is complete."""
    page.page.locator("#try-status", has_text="The answer is complete.").wait_for()
    return str(page.page.inner_text("#try-talk li:last-child .said"))


def bill(page: Watched) -> dict[str, str]:
    """What stands on the bill, by its labels."""
    labels, values = (page.page.locator(f"#try-bill {name}").all_inner_texts() for name in ("dt", "dd"))
    return dict(zip(labels, values, strict=True))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_a_question_with_a_document_is_answered_beside_its_bill(
    open_page: Opening, world: World, dark: bool, narrow: bool
) -> None:
    page = open_page("/ui/try", dark=dark, **({"size": NARROW} if narrow else {}))
    page.page.set_input_files("#try-files", files=[CONTRACT])
    page.page.click("summary:has-text('Context settings')")
    page.page.select_option("#try-planning", "never")
    page.page.fill("#try-limit", "1000")
    ask(page, QUESTION)
    assert answered(page) == worked_example.ANSWER
    told = bill(page)
    assert told["Artifact"].startswith("attachment:0:contract.md: extract")
    assert "of 1,000 tokens" in told["Window"]
    stored = httpx.get(f"{world.url}/v1/chat/completions/{told['Request']}").json()["response_metadata"]
    assert told["Cost"] == f"${Decimal(str(stored['cost']['total_cost'])):f}"
    page.shot(f"try{'-narrow' if narrow else ''}{'-dark' if dark else ''}")
    assert not page.overflowing()
    assert not page.findings()


def test_calls_of_tools_stand_in_the_order_of_the_answer(open_page: Opening, world: World) -> None:
    page = open_page("/ui/try")
    world.upstream.reply(text="Let me look.", tool_calls=[("first", {"n": 1}), ("second", {"n": 2})])
    page.page.click("summary:has-text('API, parameters')")
    named = [{"type": "function", "function": {"name": name}} for name in ("first", "second")]
    page.page.fill("#try-tools", json.dumps(named))
    ask(page, "Look it up.")
    assert answered(page) == "Let me look."
    assert [each.partition("(")[0] for each in page.page.locator("#try-talk .call").all_inner_texts()] == [
        "first",
        "second",
    ]


def test_the_next_question_goes_on_with_the_conversation(open_page: Opening, world: World) -> None:
    page = open_page("/ui/try")
    ask(page, "Name a river.")
    answered(page)
    first = bill(page)["Conversation"]
    ask(page, "And another?")
    page.page.locator("#try-talk li", has_text="echo: And another?").wait_for()
    answered(page)
    assert bill(page)["Conversation"] == first
    assert page.page.url == f"{world.url}/ui/try?conversation={first}"
    forwarded = [message["content"] for message in world.upstream.last.body["messages"]]
    assert forwarded == ["Name a river.", "echo: Name a river.", "And another?"]


def test_an_answer_can_be_stopped(open_page: Opening, world: World) -> None:
    """The upstream's call ends, what came stays in the conversation, and what it cost is on the ledger."""
    page = open_page("/ui/try")
    ask(page, "SLOWLY, please.")
    page.page.locator("#try-talk li:last-child .said", has_text="One word after").wait_for()
    page.page.click("#try-stop")
    page.page.locator("#try-status", has_text="Stopped.").wait_for()
    assert page.page.locator("#try-send").is_enabled()
    request = bill(page)["Request"]
    assert world.gateway.logged(request)["error_code"] == "client_disconnected"
    wait_until(lambda: world.upstream.in_flight == 0, "the end of the upstream's call")


def test_a_fault_is_told_and_the_question_stays(open_page: Opening) -> None:
    page = open_page("/ui/try?conversation=conv_unknown")
    ask(page, "Is anybody there?")
    page.page.locator("#try-talk .failed").wait_for()
    assert "No such conversation" in page.page.inner_text("#try-talk .failed .said")
    told = page.page.inner_text("#try-talk .failed")
    assert "Error 404" in told
    assert "conversation_not_found" in told
    assert page.page.locator("#try-talk .failed a[href^='/ui/search?q=req_']").count() == 1
    assert page.page.input_value("#try-message") == "Is anybody there?"
    page.errors[:] = [each for each in page.errors if "status of 404" not in each]  # Chromium's own line


def test_a_wrong_figure_in_a_closed_section_is_told(open_page: Opening) -> None:
    page = open_page("/ui/try")
    settings = page.page.locator("summary:has-text('Context settings')")
    settings.click()
    page.page.fill("#try-limit", "many")
    settings.click()
    ask(page, "Is anybody there?")
    assert "max_input_tokens must be a whole number" in page.page.inner_text("#try-talk .failed .said")
    page.errors[:] = [each for each in page.errors if "status of 400" not in each]  # Chromium's own line


@pytest.mark.parametrize("narrow", [False, True])
def test_without_a_script_the_answer_is_a_page(open_page: Opening, world: World, narrow: bool) -> None:
    page = open_page("/ui/try", scripts=False, **({"size": NARROW} if narrow else {}))
    page.page.set_input_files("#try-files", files=[CONTRACT])
    page.page.fill("#try-message", QUESTION)
    page.page.click("#try-send")
    assert page.page.inner_text("#try-talk .by-model .said") == worked_example.ANSWER
    told = bill(page)
    assert told["Artifact"].startswith("attachment:0:contract.md")
    page.shot(f"try-without-script{'-narrow' if narrow else ''}")
    page.page.fill("#try-message", "And the week after it?")
    page.page.click("#try-send")
    assert bill(page)["Conversation"] == told["Conversation"]
    assert not page.overflowing()


def test_by_the_keyboard_alone(open_page: Opening) -> None:
    page = open_page("/ui/try")
    keyboard = page.page.keyboard
    keyboard.press("Tab")
    first = page.focused()
    assert (first["text"], first["outline"]) == ("Skip to the content", True)
    keyboard.press("Enter")
    keyboard.press("Tab")
    assert page.focused()["id"] == "try-new"
    keyboard.press("Tab")
    assert page.focused()["id"] == "try-message"
    keyboard.type("Name a river.")
    order = []
    for _ in range(6):
        keyboard.press("Tab")
        order.append(page.focused())
    assert [each["id"] or each["tag"] for each in order] == ["try-model", "try-files", *["SUMMARY"] * 3, "try-send"]
    assert all(each["outline"] for each in order)
    page.page.focus("#try-message")
    keyboard.press("Control+Enter")
    assert answered(page) == "echo: Name a river."
    assert page.focused()["id"] == "try-message"


@pytest.mark.parametrize("scripts", [True, False])
def test_what_a_model_writes_is_text(open_page: Opening, scripts: bool) -> None:
    page = open_page("/ui/try", scripts=scripts)
    before = page.scripts()
    file: Any = {
        "name": "<img src=x onerror=alert(1)>.txt",
        "mimeType": "text/plain",
        "buffer": b"<script>alert(1)</script>",
    }
    page.page.set_input_files("#try-files", files=[file])
    page.page.fill("#try-message", "HOSTILE <script>alert(1)</script>")
    page.page.click("#try-send")
    page.page.locator("#try-bill dl").wait_for()
    said = page.page.inner_text("#try-talk .by-model .said")
    assert "<script>window.ran = 1" in said
    assert not re.search(r"[\x00\x07\x1b\x7f]", said)
    assert page.scripts() == before
    assert page.page.locator("main img, main svg, main style, main a[href^='javascript']").count() == 0


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_another_api_is_asked_with_a_system_message(open_page: Opening, world: World, api: str) -> None:
    page = open_page("/ui/try")
    page.page.click("summary:has-text('System message')")
    page.page.fill("#try-system", "Be brief.")
    page.page.click("summary:has-text('API, parameters')")
    page.page.select_option("#try-api", api)
    page.page.fill("#try-temperature", "0.5")
    ask(page, "Name a river.")
    assert answered(page) == "echo: Name a river."
    sent = world.upstream.last.body
    assert [each["role"] for each in sent["messages"]] == ["system", "user"]
    assert sent["temperature"] == 0.5
    page.page.click("#try-bill a:has-text('what was sent, and why')")
    page.page.wait_for_url("**/ui/requests/req_*")
    page.page.go_back()
    assert not page.overflowing()
