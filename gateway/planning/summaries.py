"""Summaries of artifacts with a focus: from the cache, in one call, or by map and reduce (contract §5)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.ids import content_digest
from gateway.models.artifacts import Artifact
from gateway.models.internal import Ask, InternalModelFailed, OverCeiling
from gateway.planning.summary_cache import Found, SummaryCache, SummaryKey
from gateway.planning.summary_prompt import PROMPT_VERSION, TOKENS_PER_SUMMARY, SummaryTask, pieces, summary_messages
from gateway.planning.whole_part import whole_part
from gateway.ports import InternalModel

CHARS_PER_TOKEN = 3
"""Fewer than in most text: a piece that is taken for smaller than it is would be refused."""
PROMPT_TOKENS = 600
DEFAULT_WINDOW = 16_000
MOST_PIECE_CHARS = 120_000
MOST_PIECES = 24
PIECES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and whether it cost this request nothing."""

    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Summarizer:
    """The summarizer of one request. `secret` is the storage's; with `store: false` the cache is neither read nor
    written, by a dry run it is only read."""

    model: InternalModel
    cache: SummaryCache
    tenant: str
    secret: bytes
    reads: bool
    keeps: bool
    timeout_seconds: float

    async def summarize(self, artifact: Artifact, focus: str) -> Summary:
        """A summary that is shorter than its source.

        Raises:
            InternalModelFailed: none could be made, or it was no shorter; the message says why.
        """
        key = SummaryKey(self.tenant, content_digest(artifact.content), focus, self.model.name, PROMPT_VERSION)
        found = await self._found(key, artifact, focus)
        return Summary(found.text, found.hit)

    async def _found(self, key: SummaryKey, artifact: Artifact, focus: str) -> Found:
        async def make() -> str:
            text = await self._made(artifact, focus)
            if len(text) >= len(artifact.content):  # no use to anybody: it is not kept either
                raise InternalModelFailed("summary_not_shorter")
            return text

        return await self.cache.get_or_make(key, make, self.secret, read=self.reads, keep=self.keeps)

    async def _made(self, artifact: Artifact, focus: str) -> str:
        what = f"{artifact.artifact_type.value} {artifact.title or ''}".strip()
        window = (self.model.max_input_tokens or DEFAULT_WINDOW) - TOKENS_PER_SUMMARY - PROMPT_TOKENS
        room = min(MOST_PIECE_CHARS, max(1000, window * CHARS_PER_TOKEN))
        return await self._reduced(artifact.content, what, focus, room)

    async def _reduced(self, text: str, what: str, focus: str, room: int) -> str:
        """One call where the text fits, else a summary of its pieces' summaries."""
        if len(text) <= room:
            return await self._ask(self._question(SummaryTask(text, what, focus), None))
        parts = pieces(text, room, MOST_PIECES)
        if not parts:
            raise InternalModelFailed("summarizer_artifact_too_large")
        at_once = asyncio.Semaphore(PIECES_AT_ONCE)
        asks = [self._question(SummaryTask(part, what, focus), (n, len(parts))) for n, part in enumerate(parts, 1)]
        await self.model.allow(asks)

        async def one(ask: Ask) -> str:
            async with at_once:
                return await self._ask(ask)

        failures: Sequence[BaseException] = ()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(ask)) for ask in asks]
        except* InternalModelFailed as failed:
            failures = failed.exceptions
        if failures:  # where the model failed, too, that is what whoever waits for this summary has to know
            raise next((one for one in failures if not isinstance(one, OverCeiling)), failures[0])
        joined = "\n\n".join(task.result() for task in tasks)
        if len(joined) >= len(text):
            raise InternalModelFailed("summary_not_shorter")
        return await self._reduced(joined, what, focus, room)

    def _question(self, task: SummaryTask, part: tuple[int, int] | None) -> Ask:
        most = min(TOKENS_PER_SUMMARY, self.model.max_output_tokens or TOKENS_PER_SUMMARY)
        return Ask("summarizer", summary_messages(task, part), most, self.timeout_seconds)

    async def _ask(self, ask: Ask) -> str:
        answer = await self.model.ask(ask)
        if not answer.text.strip():
            raise InternalModelFailed("summarizer_empty")
        if not answer.is_cut:
            return answer.text.strip()
        text = whole_part(answer.text)  # half a sentence says something else than a whole one, or half a figure
        if not text:
            raise InternalModelFailed("summarizer_cut")
        return text
