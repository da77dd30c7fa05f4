"""Every example of docs/clients.md runs as it stands there (but for the port), and prints what its comments say."""

import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.compat.running import NODE_PROJECT, node, python_of, run_text
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.compat

PAGE = (REPOSITORY / "docs/clients.md").read_text("utf-8")
SECTION = re.compile(r"^## ([^\n]+)\n\n```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = {heading: (language, code) for heading, language, code in SECTION.findall(PAGE)}
SETTINGS = {"Claude Code", "Codex CLI"}
"""Settings of programs: `test_coding_agents` runs these with them."""
PRINTED = re.compile(r"(?:print\(|console\.log\(|head ).*?(?:#|//) (.+?)(?: \((\d) times\))?$", re.MULTILINE)
RUNS = [
    ("openai, Python", "openai-3"),
    ("openai, Python", "openai-2"),
    ("openai, JavaScript", "openai"),
    ("openai, JavaScript", "openai-6"),
    ("langchain-openai", "langchain"),
    ("LiteLLM", "litellm"),
    ("Vercel AI SDK", "ai"),
    ("LangChain.js", "@langchain/openai"),
    ("LlamaIndex", "frameworks"),
    ("instructor", "frameworks"),
    ("pydantic-ai", "pydantic-ai"),
    ("anthropic, Python", "anthropic"),
    ("curl", ""),
]


def _command(language: str, code: str, environment: str, folder: Path) -> list[str]:
    if language == "python":
        script = folder / "example.py"
        script.write_text(code, "utf-8")
        return [str(python_of(environment)), str(script)]
    if language == "js":
        found = node()
        script = folder / "example.mjs"
        script.write_text(code.replace("from 'openai'", f"from '{environment}'"), "utf-8")
        (folder / "node_modules").symlink_to(NODE_PROJECT / "node_modules")
        return [str(found), str(script)]
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    return ["bash", "-c", code]


@pytest.mark.parametrize(("heading", "environment"), RUNS)
def test_s6_the_example_finds_its_bill(
    heading: str, environment: str, compat_gateway: GatewayProcess, scripted_upstream: MockUpstream, tmp_path: Path
) -> None:
    """§6: where the page says that a client's user reads the bill, it is."""
    language, code = EXAMPLES[heading]
    command = _command(language, code.replace("http://127.0.0.1:8000", compat_gateway.url), environment, tmp_path)
    expected = [text for text, times in PRINTED.findall(code) for _ in range(int(times or 1))]
    printed = run_text(command, compat_gateway, scripted_upstream, tmp_path).splitlines()
    assert expected
    assert len(printed) == len(expected), printed
    wrong = [
        (line, text)
        for line, text in zip(printed, expected, strict=True)
        if not fnmatchcase(line, text.replace("…", "*"))
    ]
    assert not wrong


def test_every_example_is_run() -> None:
    """The page holds no code that this module does not run."""
    assert {heading for heading, _ in RUNS} | SETTINGS == set(EXAMPLES)
    assert PAGE.count("\n```") == 2 * len(EXAMPLES)
