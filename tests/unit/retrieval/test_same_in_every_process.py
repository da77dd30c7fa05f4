"""The same request is answered alike in every process (guarantee §4): nothing goes by the numbers of terms."""

import subprocess
import sys

import pytest

SCORES = """
import random
from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.corpus import SourceCorpus, index_texts
from gateway.retrieval.rank import rankings
from gateway.retrieval.corpus import TermLexicon

rng = random.Random(7)
words = [f"{a}{b}" for a in ("har", "lam", "kee", "tid") for b in ("bour", "ps", "per", "es", "ORD-")]
for case in range(40):
    text = "\\n\\n".join(" ".join(rng.choices(words, k=9)) + f" Ada-{rng.randint(1, 9)}" for _ in range(30))
    question = " ".join(rng.choices(words, k=6)) + f" of Ada-{rng.randint(1, 9)} and Ada-3, then Keeper?"
    artifact = SearchedSource(text, "artifact", label="read_file berths")
    sources, lexicon = [artifact, SearchedSource(text[::2], "turn")], TermLexicon()
    corpus = SourceCorpus(sources, index_texts([source.content for source in sources], lexicon), lexicon)
    found = rankings(RelevanceQuery(question), corpus, question)
    print([score.hex() for each in found for score in each.scores.tolist()])
"""


def scores(seed: int) -> str:
    """Printed by a process that hashes otherwise."""
    run = subprocess.run(
        [sys.executable, "-c", SCORES], env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
    )
    return run.stdout


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_s4_scores_are_the_same_to_the_last_digit(seed: int) -> None:
    assert scores(0).count("\n") == 40
    assert scores(seed) == scores(0)
