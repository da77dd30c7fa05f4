"""The pictures of README.md: `python -m tests.browser.pictures` writes docs/pictures/.

What they show was made by requests to a gateway before a scripted upstream: the worked example of docs/context.md, and
further turns of its conversation. Times and ids differ each time, nothing else does.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.browser.chromium import NONE, executable, launch
from tests.browser.watched import watched
from tests.browser.world import World
from tests.support import worked_example
from tests.support.answers import user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import REPOSITORY
from tests.support.http_server import Record
from tests.support.internal_models import InternalModels
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

PICTURES = REPOSITORY / "docs" / "pictures"
MAX_BYTES = 200_000
SIZE, REQUEST_HEIGHT = (1180, 940), 1120
MODEL = "assistant"
INFO = {"max_input_tokens": 4200, "max_output_tokens": 1000}
FURTHER = {
    "Thank you. And was anything damaged?": "No. The report of week 10 says that no goods were damaged.",
    "Which other orders went through Brennick that week?": "Orders 4406 and 4416, both on time.",
    "How was the depot in week 12?": "As always: trucks left on time on all days, with two hours of overtime.",
    "Write two sentences to the customer.": "Order 4411 came two days late because ice had closed the ferry. "
    "We credit you 4 % of its price, as clause 14 of our contract says.",
}
CACHED = 0.6
"""Share of a prompt that the scripted provider reads from its cache, from the second turn on."""
FOLDED = """() => document.querySelectorAll(".messages details").forEach(e => { e.open = false; })"""
CONTRACT_ALONE = """() => document.querySelectorAll("details.artifact").forEach(e => {
    e.open = e.querySelector("summary").textContent.includes("contract");
    const text = e.querySelector("pre.original"), last = [...e.querySelectorAll("pre mark")].pop();
    const top = e => e.getBoundingClientRect().top;
    if (e.open) text.scrollTop += top(last) - top(text) - 90; })"""

FROM_THE_WINDOW_ON = """() => window.scrollBy(0, document.getElementById("window").getBoundingClientRect().top - 20)"""


def main() -> int:
    """Writes both; 1 without a browser, or if one is too large for a README."""
    path = executable()
    if path is None:
        print(NONE)
        return 1
    with tempfile.TemporaryDirectory() as name, MockUpstream() as upstream:
        factory = GatewayFactory(upstream, Path(name))
        try:
            world = World(factory(_config(upstream)), upstream)
            _talk(world)
            _take(world, path)
        finally:
            factory.close()
    large = [each for each in PICTURES.glob("*.png") if each.stat().st_size > MAX_BYTES]
    print(*(f"{each.name}: {each.stat().st_size} bytes" for each in sorted(PICTURES.glob("*.png"))), sep="\n")
    return 1 if large else 0


def _config(upstream: MockUpstream) -> dict[str, Any]:
    served = {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    planner = {**served, "model": "openai/gpt-4o-mini"}
    return {
        "model_list": [
            {"model_name": MODEL, "litellm_params": served, "model_info": INFO},
            {"model_name": "gpt-4o-mini", "litellm_params": planner},
        ],
        "context": {"planning": "auto"},
    }


def _talk(world: World) -> None:
    world.upstream.handler = _provider()
    first = worked_example.request() | {"model": MODEL, "user": "ada"}
    first["context"] = {"models": first["context"]["models"]}
    same = {"conversation": world.ask("first", first)["conversation"]["id"], "tools": worked_example.TOOLS}
    for question in FURTHER:
        world.ask(question, {"model": MODEL, "user": "ada", "messages": [user(question)], **same})


def _provider() -> Any:
    """The worked example's, which knows the further answers, too, and reads what it has seen from a prompt cache."""
    scripted = worked_example.models()

    def answered(body: dict[str, Any]) -> Reply:
        question = next((each for each in FURTHER if each in str(body["messages"][-1]["content"])), None)
        return Reply(text=FURTHER[question] if question else worked_example.ANSWER)

    counted = worked_example.counted(InternalModels(scripted.planner, scripted.summarizer, answered))

    def reply(record: Record) -> Reply:
        made: Reply = counted(record)
        messages = (record.body or {}).get("messages") or []
        if isinstance(made.usage, dict) and any(each.get("role") == "assistant" for each in messages[:-3]):
            made.usage["prompt_tokens_details"] = {"cached_tokens": int(CACHED * made.usage["prompt_tokens"])}
        return made

    return reply


def _take(world: World, path: str) -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        page = watched(browser, world.url, size=SIZE)
        page.go(f"/ui/conversations/{world.conversations['first']}")
        page.page.screenshot(path=PICTURES / "conversation.png")
        page.go(f"/ui/requests/{world.requests['first']}")
        page.page.set_viewport_size({"width": SIZE[0], "height": REQUEST_HEIGHT})
        page.page.evaluate(FOLDED)
        page.page.evaluate(CONTRACT_ALONE)
        page.page.evaluate(FROM_THE_WINDOW_ON)
        page.page.screenshot(path=PICTURES / "request.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
