"""The project's own cases: made up by a fixed seed, so that nothing needs to be fetched and nobody else's words are in
them."""

from tests.eval.cases import Case, parse
from tests.eval.made_adversarial import adversarial
from tests.eval.made_agents import agents
from tests.eval.made_chats import chats
from tests.eval.made_documents import documents
from tests.eval.made_files import files
from tests.eval.made_tools import tools
from tests.eval.made_wording import wording

SUITES = (chats, tools, documents, agents, adversarial, wording, files)


def made() -> list[Case]:
    """All of them, in the same order every time."""
    return [case for suite in SUITES for case in parse(suite().objects, "")]
