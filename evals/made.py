"""The project's own cases: made up by a fixed seed, so that nothing needs to be fetched and nobody else's words are in
them."""

from evals.cases import Case, parse
from evals.made_adversarial import adversarial
from evals.made_agents import agents
from evals.made_chats import chats
from evals.made_documents import documents
from evals.made_files import files
from evals.made_tools import tools
from evals.made_wording import wording

SUITES = (chats, tools, documents, agents, adversarial, wording, files)


def made() -> list[Case]:
    """All of them, in the same order every time."""
    return [case for suite in SUITES for case in parse(suite().objects, "")]
