"""Extracts, a rolling summary, or both: which brings the evidence of a question. `python -m evals.memory --help`.

Each history becomes a stored conversation, a few turns at a time, and its old turns are summarized on the way by a
scripted summarizer, which keeps lead sentences and those with names and figures. Its questions are then asked with each
`context.memory`; nothing of them is stored, so that every one finds the same conversation.
"""

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from evals.cases import Case, load, parse
from evals.made_chats import chats
from evals.measure import held, tokens
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, plan_of
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

Json = dict[str, Any]
FED, ASKED = "fed", "asked"
"""Two names of one model: what it was sent of a conversation as that grew is not what a question begins with."""
MODES = ("extracts", "summary", "both")
ITEMS = 20
FED_SHARE = 0.15
"""Of the budget: what is added to a conversation between two answers."""
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
KEYWORD = re.compile(r"\b\d[\d:,.]*|(?<=[a-z,] )[A-Z]\w+")
WORDS = re.compile(r"At most (\d+) words")


@dataclass(frozen=True)
class Found:
    """A question at a budget with one `context.memory`."""

    case: Case
    budget: int
    memory: str
    share: float
    forwarded: int
    segments: int
    shown: int


def worthless(asked: str) -> str:
    """As long as it may be, and of no use to any question."""
    return " ".join(["They talked about this and that, and went on."] * max(1, _most_words(asked) // 9))


def _most_words(asked: str) -> int:
    return int(found[1]) if (found := WORDS.search(asked)) else 100


def keywords(asked: str) -> str:
    """Lead sentences, then those with most names and figures, in their order."""
    most = _most_words(asked)
    text = asked.partition("<text>\n")[2].rpartition("\n</text>")[0]
    sentences = [each.strip() for each in SENTENCE.split(text) if each.strip()]
    order = sorted(range(2, len(sentences)), key=lambda n: (-len(set(KEYWORD.findall(sentences[n]))), n))
    kept: list[int] = []
    for number in [*range(min(2, len(sentences))), *order]:
        words = len(sentences[number].split())
        if words <= most:
            kept.append(number)
            most -= words
    return " ".join(sentences[n] for n in sorted(kept)) or "Nothing."


SETTLED = 0.15
"""Seconds within which a summary is asked for and stored, also where others use the processor."""


class Feeding:
    """A gateway, its upstream, and conversations that grow."""

    def __init__(self, client: httpx.Client, upstream: MockUpstream, summarizer: Callable[[str], str]) -> None:
        self._client, self._upstream = client, upstream
        self._answers: list[str] = []
        self.models = InternalModels(lambda _: plan_of(), lambda asked: Reply(text=summarizer(asked)), self._answer)
        upstream.handler = self.models
        upstream.count_prompt = lambda _: 1

    def _answer(self, body: Json) -> Reply:
        return Reply(text=self._answers.pop() if self._answers else "I see.")

    def results(self, cases: Sequence[Case]) -> Iterator[Found]:
        """Each case at each of its budgets at which not everything fits, with each memory."""
        groups: dict[tuple[int, ...], list[Case]] = defaultdict(list)
        for case in cases:
            groups[tuple(id(message) for message in case.messages[:-1])].append(case)
        for group in groups.values():
            for budget in sorted({budget for case in group for budget in case.budgets}):
                if tokens(group[0].flat()) > budget:
                    name, segments = self._grown(group[0].messages[:-1], budget)
                    for case in group:
                        for memory in MODES:
                            yield self._asked(case, budget, memory, name, segments)

    def _grown(self, messages: Sequence[Json], budget: int) -> tuple[str, int]:
        """A stored conversation of these messages, and how many summaries it has."""
        self.models.summarized.clear()
        name = str(self._post("/conversations", {})["id"])
        waiting: list[Json] = []
        rest = list(messages)
        while rest:
            message = rest.pop(0)
            answers = bool(rest) and message["role"] == "user" and rest[0]["role"] == "assistant"
            if not answers or tokens(waiting) < FED_SHARE * budget:
                waiting.append(message)
                continue
            self._add(name, waiting)
            self._answers = [rest.pop(0)["content"]]
            options = {"memory": "summary", "max_input_tokens": budget}
            body = {"model": FED, "messages": [message], "conversation": name, "context": options}
            self._post("/chat/completions", body)
            self._settle()
            waiting = []
        self._add(name, waiting)
        return name, len(self.models.summarized)

    def _add(self, name: str, messages: Sequence[Json]) -> None:
        for start in range(0, len(messages), ITEMS):
            self._post(f"/conversations/{name}/items", {"items": messages[start : start + ITEMS]})

    def _settle(self) -> None:
        """Until what may be under way behind the answer is done."""
        time.sleep(SETTLED)
        while self._upstream.in_flight:
            time.sleep(0.01)
        time.sleep(SETTLED)

    def _asked(self, case: Case, budget: int, memory: str, name: str, segments: int) -> Found:
        options = {"memory": memory, "max_input_tokens": budget}
        body = {"model": ASKED, "messages": case.messages[-1:], "conversation": name, "store": False, "max_tokens": 64}
        answer = self._post("/chat/completions", {**body, "context": options})
        forwarded: list[Json] = self.models.answered[-1]["messages"]
        used = answer["response_metadata"]["context_utilization"]
        shown = (used.get("memory") or {}).get("segments", 0)
        return Found(case, budget, memory, held(case, forwarded), tokens(forwarded), segments, shown)

    def _post(self, path: str, body: Json) -> Json:
        answer = self._client.post(path, json=body)
        answer.raise_for_status()
        found: Json = answer.json()
        return found


@contextmanager
def feeding(summarizer: Callable[[str], str], fork_server: ForkServer | None = None) -> Iterator[Feeding]:
    """The gateway as its operators run it."""
    with MockUpstream() as upstream:
        params = {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-eval-000000"}
        info = {"max_input_tokens": 1_000_000, "max_output_tokens": 1000, "tokenizer": "o200k_base"}
        names = (FED, ASKED, "gpt-4o-mini")
        config = {
            "model_list": [{"model_name": name, "litellm_params": params, "model_info": info} for name in names],
            "server": {"log_level": "warning"},
            "context": {"planning": "never"},
        }
        with (
            GatewayProcess(config, fork_server=fork_server) as gateway,
            httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=120) as client,
        ):
            yield Feeding(client, upstream, summarizer)


def table(results: Sequence[Found]) -> str:
    """Recall in per cent by budget, and of the cases that extracts win how many each loses."""
    names = ("memory", "recall", "items", "tokens", "shown", "lost", "won")
    lines = [f"{'budget':>7}{'n':>5}" + "".join(f"{name:>9}" for name in names)]
    won = {(f.case.identity, f.budget): f.share == 1 for f in results if f.memory == "extracts"}
    for budget in sorted({found.budget for found in results}):
        for memory in MODES:
            group = [found for found in results if (found.budget, found.memory) == (budget, memory)]
            count = len(group)
            before = [won[found.case.identity, budget] for found in group]
            now = [found.share == 1 for found in group]
            lost = sum(b and not n for b, n in zip(before, now, strict=True))
            gained = sum(n and not b for b, n in zip(before, now, strict=True))
            recall, items = 100 * sum(now) / count, 100 * sum(found.share for found in group) / count
            forwarded, shown = sum(f.forwarded for f in group) / count, sum(f.shown for f in group) / count
            lines.append(
                f"{budget:>7}{count:>5}{memory:>9}{recall:>9.1f}{items:>9.1f}{forwarded:>9.0f}{shown:>9.1f}"
                f"{lost:>9}{gained:>9}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m evals.memory", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of SUITE….jsonl(.gz) instead of the project's own chats")
    parser.add_argument("--suite", default="conversation", help="of that folder")
    parser.add_argument("--limit", type=int, help="so many cases")
    parser.add_argument("--worthless", action="store_true", help="summaries that help nobody: what do they displace?")
    given = parser.parse_args()
    cases = [c for c in load(given.data) if c.suite == given.suite] if given.data else parse(chats().objects, "")
    with feeding(worthless if given.worthless else keywords) as gateway:
        print(table(list(gateway.results(cases[: given.limit]))))


if __name__ == "__main__":
    main()
