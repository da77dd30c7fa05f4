"""Examples of a page, run as they stand there."""

import re
from pathlib import Path

from tests.support.command import printed
from tests.support.gateway_process import GatewayProcess

ROOT = Path(__file__).parents[2]


README, INTEGRATING, MEMORY = (
    (ROOT / page).read_text() for page in ("README.md", "docs/integrating.md", "docs/memory.md")
)


ADDRESS = "http://127.0.0.1:8000"


def block(page: str, heading: str, fence: str) -> str:
    """The first block of code of that language below a heading of the page."""
    found = re.search(rf"^## {heading}\n.*?^```{fence}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert found, heading
    return found.group(1)


def run(code: str, running: GatewayProcess, folder: Path) -> str:
    """What the code prints, run against the gateway in the folder; in this process, which has imported the SDK."""
    assert ADDRESS in code
    example = compile(code.replace(ADDRESS, running.url), "README", "exec")
    return printed(lambda: exec(example, {"__name__": "__main__"}), folder, OPENAI_API_KEY="sk-readme")
