"""Calls of tools that another provider ran, before upstreams that know nothing of them (guarantee §1.14)."""

from typing import Any

import pytest

from gateway.core.formats.anthropic.plain_blocks import plain_messages
from gateway.core.formats.anthropic.request_parser import read_request as read_messages
from gateway.core.formats.responses.request_parser import read_request as read_response
from gateway.core.jsons import Json
from gateway.pipeline.payload import without_items
from tests.support.answers import text_part
from tests.unit.making import chat as made_chat

SEALED = "c2VhbGVk" * 20
PICTURE = "iVBORw0KGgo" * 20
PDF = "application/pdf"
BEFORE, AFTER = {"role": "user", "content": "first"}, {"role": "user", "content": "then"}


def asked_wiki(number: int, name: str, arguments: str, **more: Any) -> Json:
    """A call of a tool of an MCP server."""
    named = {"type": "mcp_call", "id": f"mcp_{number}", "server_label": "wiki", "name": name}
    return {**named, "arguments": arguments, **more}


ITEMS: dict[str, tuple[Json, list[str]]] = {
    "search": (
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Bern"}},
        ["[web_search]", "query: Bern"],
    ),
    "page": (
        {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "https://a.example/x"}},
        ["action: open_page", "url: https://a.example/x"],
    ),
    "files": (
        {
            "type": "file_search_call",
            "id": "fs_1",
            "queries": ["rent"],
            "status": "completed",
            "results": [{"file_id": "file-9", "filename": "lease.pdf", "score": 0.9, "text": "Rent: 900"}],
        },
        ["queries: rent", "filename: lease.pdf", "text: Rent: 900"],
    ),
    "code": (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "container_id": "cntr_1",
            "code": "a = 1\nprint(a)",
            "outputs": [{"type": "logs", "logs": "1"}, {"type": "image", "url": f"data:image/png;base64,{PICTURE}"}],
        },
        ["[code_interpreter]", "code: a = 1\nprint(a)", "logs: 1", "url: (a picture)"],
    ),
    "picture": (
        {"type": "image_generation_call", "id": "ig_1", "result": PICTURE, "revised_prompt": "a boat"},
        ["result: (a picture)", "revised_prompt: a boat"],
    ),
    "mcp": (
        asked_wiki(1, "ask", '{"q":1}', output="forty-two", error=None),
        ["[mcp wiki ask]", 'arguments: {"q":1}', "output: forty-two"],
    ),
    "computer": (
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "click", "x": 7, "y": 8}},
        ["[computer]", "action: click", "x: 7"],
    ),
    "screen": (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": f"DATA:image/png;base64,{PICTURE}"},
        },
        ["image_url: (a picture)"],
    ),
    "bytes": (
        asked_wiki(2, "page", "{}", output={"source": {"type": "base64", "media_type": PDF, "data": PICTURE}}),
        ["source: (a file)"],
    ),
    "tools": ({"type": "mcp_list_tools", "id": "l_1", "server_label": "wiki", "tools": [{"name": "ask"}]}, []),
    "nothing": ({"type": "web_search_call", "id": "ws_3", "status": "completed", "action": {"type": "search"}}, []),
    "sealed": ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED}, []),
}


def ran(name: str, *, result: str, content: Any, **given: Any) -> list[Json]:
    """A call of a tool that Anthropic ran, and its result."""
    call = {"type": "server_tool_use", "id": "s1", "name": name, "input": given}
    return [call, {"type": f"{result}_tool_result", "tool_use_id": "s1", "content": content}]


FOUND = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": SEALED}
LISTED = {"type": "bash_code_execution_result", "stdout": "a.txt\n", "stderr": "", "return_code": 0, "content": []}
TOO_OFTEN = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
BLOCKS: dict[str, tuple[list[Json], list[str]]] = {
    "search": (
        ran("web_search", query="Bern", result="web_search", content=[FOUND]),
        ["[server_tool_use web_search]", "query: Bern", "url: https://a.example", "title: A"],
    ),
    "failed": (
        ran("web_search", query="x", result="web_search", content=TOO_OFTEN),
        ["error_code: max_uses_exceeded"],
    ),
    "code": (
        ran("bash_code_execution", command="ls -l", result="bash_code_execution", content=LISTED),
        ["command: ls -l", "stdout: a.txt", "return_code: 0"],
    ),
    "mcp": (
        [
            {"type": "mcp_tool_use", "id": "m1", "name": "ask", "server_name": "wiki", "input": {"q": "life"}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": [text_part("forty-two")]},
        ],
        ["[mcp_tool_use wiki ask]", "q: life", "text: forty-two"],
    ),
    "nothing": ([{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}], []),
}


def of_response(*items: Json) -> list[Json]:
    """A chat's messages for a history of these items."""
    chat = read_response({"model": "m", "input": [BEFORE, *items, AFTER]}).chat
    return without_items(chat["messages"], made_chat(chat["messages"], api="responses"))


def of_messages(*blocks: Json) -> list[Json]:
    """The same for an answer of these blocks."""
    body = {"model": "m", "max_tokens": 9, "messages": [BEFORE, {"role": "assistant", "content": [*blocks]}, AFTER]}
    return plain_messages(read_messages(body, {}).chat["messages"], thoughts=False)


def check(messages: list[Json], told: list[str], *after: str) -> None:
    """Checks that these words, and no others, are the answer."""
    assert (messages[0], messages[-1]) == (BEFORE, AFTER)
    said = messages[1:-1]
    if not told and not after:
        assert not said
        return
    (answer,) = said
    assert answer.keys() == {"role", "content"}
    at = [answer["content"].index(each) for each in (*told, *after)]
    assert told or answer["content"] == after[0]
    assert at == sorted(at)
    assert SEALED not in answer["content"]
    assert PICTURE not in answer["content"]


@pytest.mark.parametrize("case", ITEMS)
def test_s1_14_what_was_run_elsewhere_is_told_in_words(case: str) -> None:
    item, told = ITEMS[case]
    check(of_response(item), told)
    check(of_response(item, {"role": "assistant", "content": "So it is."}), told, "So it is.")


@pytest.mark.parametrize("case", BLOCKS)
def test_s1_14_blocks_of_anthropics_are_told_in_words(case: str) -> None:
    blocks, told = BLOCKS[case]
    check(of_messages(*blocks), told)
    check(of_messages(*blocks, {"type": "text", "text": "So it is."}), told, "So it is.")


def test_s1_14_a_call_of_the_clients_own_stays_one_beside_what_is_told() -> None:
    item, told = ITEMS["search"]
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "seen"}
    _, answer, result, _ = of_response(item, call, output)
    assert told[-1] in answer["content"]
    assert (answer["tool_calls"][0]["id"], result["tool_call_id"]) == ("c", "c")
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    _, answer, _ = of_messages(*BLOCKS["search"][0], use)
    assert "query: Bern" in answer["content"]
    assert answer["tool_calls"][0]["id"] == "c"
