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


@pytest.mark.long
@pytest.mark.chaos
def test_s4_scores_are_the_same_to_the_last_digit() -> None:
    """Printed by processes that hash otherwise."""
    command = [sys.executable, "-c", SCORES]
    started = [
        subprocess.Popen(command, env={"PYTHONHASHSEED": str(seed)}, stdout=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    (found,) = {process.communicate()[0] for process in started}
    assert found.count("\n") == 40
