"""What a context is drafted from, and what is known of it before a plan is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.artifacts.collect import (
    artifacts_of_earlier,
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    text_of,
    unique_ids,
    without_repeats,
)
from gateway.artifacts.files import FilePlace
from gateway.artifacts.in_messages import own_words
from gateway.artifacts.steps_as_text import StepsAsText
from gateway.context.planner import PlanMade
from gateway.embeddings.background import PendingVectors
from gateway.models.artifacts import Artifact
from gateway.models.bill import ContextUtilizationMetadata
from gateway.models.conversation import INLINE_MESSAGES, Context, Earlier, History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.window import Fitted, Material, Unreduced
from gateway.planning.decision import Decision, is_excerpted, without_standing
from gateway.planning.prompt import PlannerTask
from gateway.relevance.index_cache import PassageFinder
from gateway.window.budget import Budget, Limits
from gateway.window.candidates import TranscriptMessage, as_artifact, candidates, recent_texts, transcript
from gateway.window.counting import PromptCounter
from gateway.window.fitting import Tools
from gateway.window.plan import changeable
from gateway.window.recall import absent

# A context that was made for a request.


NO_MATERIAL = Material(instructions=(), messages=(), current=0)


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """What is forwarded, what is to be remembered of it, and the figures of how it came about."""

    fitted: Fitted
    utilization: ContextUtilizationMetadata
    material: Material
    new_attachments: tuple[Artifact, ...] = ()
    counting: PromptCounter | None = None
    cached: tuple[str, ...] = ()
    """Digests of contents of which the cache keeps something."""
    indexed: PassageFinder | None = None
    """What was indexed, to be kept once this request is stored."""
    remains: PendingVectors | None = None
    """What is kept for later questions once this one is answered."""
    made: PlanMade | None = None
    """What came of asking a planner, for whoever has to build the same request's context again."""


# Step 2: what a context is made of, out of a conversation and what came with the request.


QUESTION_CHARS = 4000
INLINE_CHARS = 100_000
NO_EARLIER = Earlier()
"""Where all messages of a conversation may be forwarded."""


@dataclass(frozen=True, slots=True)
class Files:
    """Texts of `file` parts: those of messages that may be forwarded, and of earlier ones."""

    sent: dict[FilePlace, str]
    earlier: dict[FilePlace, str]


def collect(request: ChatRequest, told: StepsAsText, files: Files, document_min_chars: int) -> Material:
    """The messages and artifacts of a request.

    Args:
        document_min_chars: longer texts in user messages are documents (guarantee §4 I4).
    """
    history = told.history
    context = _context(request, told, files.sent, document_min_chars)
    earlier = history.earlier or NO_EARLIER
    return Material(
        instructions=history.instructions,
        messages=context.conversation_history,
        current=context.current,
        placed=context.placed,
        restored=context.restored,
        attached=context.artifacts,
        question=_question(context),
        frame=history.frame,
        earlier=earlier.messages,
        recallable=artifacts_of_earlier(earlier.messages, files.earlier, document_min_chars, context.all_artifacts()),
        turns_before=earlier.turns,
    )


def is_little(request: ChatRequest, told: StepsAsText, files: Files) -> bool:
    """Whether a context is built in the twinkling of an eye. Every message and part takes time, however small."""
    history = told.history
    if request.size >= INLINE_CHARS or len(history.messages) >= INLINE_MESSAGES or history.earlier:
        return False
    size = sum(map(len, files.sent.values())) + sum(len(a.content or "") for a in request.attachments)
    size += sum(a.size_chars for a in (*history.attachments, *told.artifacts))
    return size + sum(message_size(m.body) for m in history.messages) < INLINE_CHARS


def message_size(message: dict[str, Any]) -> int:
    """Characters of a message's content, roughly: enough to tell much from little."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    texts = (str(part.get("text") or part.get("file") or "") for part in parts if isinstance(part, dict))
    return sum(len(text) for text in texts)


def _context(request: ChatRequest, told: StepsAsText, files: dict[FilePlace, str], document_min_chars: int) -> Context:
    history = told.history
    current = current_turn(history)
    placed = extract_artifacts_from_messages(history.messages, current)
    placed += documents_in_messages(history.messages, current, document_min_chars, files)
    old = [replace(artifact, historical=True) for artifact in history.attachments]
    attached = without_repeats(old + attachments_to_artifacts(request.attachments, len(old)))
    unique = tuple(unique_ids([*placed, *told.artifacts, *attached]))
    first, last = len(placed), len(placed) + len(told.artifacts)
    return Context(history.messages, current, unique[:first], unique[first:last], unique[last:])


def _question(context: Context) -> str:
    """The current user message's own words: its text without what is a document in it."""
    messages, current = context.conversation_history, context.current
    if not messages:
        return ""
    content = messages[current].content
    here = [a.place for a in context.placed if a.place.message == current and messages[current].role == "user"]
    texts = []
    parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for number, part in enumerate(parts):
        text = text_of([part]) if isinstance(part, dict) else ""
        spans = [p.span for p in here if p.span and p.part == (None if isinstance(content, str) else number)]
        texts.append(own_words(text, spans))
    question = "\n".join(text for text in texts if text.strip())
    if len(question) <= QUESTION_CHARS:
        return question
    return question[: QUESTION_CHARS // 2] + "\n" + question[-QUESTION_CHARS // 2 :]


FORCED = "forced"


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """One request whose context is to be made. `has_planner`: somebody may be asked for a plan; `is_planned`: somebody
    was, when a context was made for it before."""

    request: ChatRequest
    told: StepsAsText
    facts: ModelFacts
    budget: Budget
    files: Files
    has_planner: bool
    is_planned: bool = False

    @property
    def history(self) -> History:
        """The conversation, without the tool steps that are told as text."""
        return self.told.history


@dataclass(frozen=True, slots=True)
class Draft:
    """A context without a plan, and what a planner is to be asked for one that is called for."""

    asked: ContextRequest
    fitted: Fitted
    material: Material
    decision: Decision
    counting: PromptCounter
    limits: Limits
    tools: Tools
    finder: PassageFinder
    unreduced: Unreduced
    task: PlannerTask


def task_of(draft: Draft) -> PlannerTask:
    """What a planner is asked: on the artifacts that a plan can change, in the heuristic's order. Without any, nobody
    is to be paid."""
    artifacts, quoted = _asked_about(draft)
    ranked = dict.fromkeys(id(each.of) for each in candidates(draft.material, artifacts, (), draft.tools.relevance))
    places = {of: place for place, of in enumerate(ranked)}
    artifacts.sort(key=lambda artifact: places.get(id(artifact), len(places)))
    return replace(draft.task, artifacts=artifacts, recent=recent_texts(draft.material), quoted=quoted)


def _asked_about(draft: Draft) -> tuple[list[Artifact], frozenset[str]]:
    """The artifacts that a plan can change, and the ids of those of which it can only find other passages."""
    material, fitted = draft.material, draft.fitted
    undecided = without_standing(material, draft.unreduced, draft.asked.history.stored)
    if fitted.anew:
        told = transcript(material, frozenset()) if is_excerpted(material, draft.unreduced) else []
        return list(undecided) or _as_one(told), frozenset()
    free = {id(artifact) for artifact in changeable(material, fitted)}
    artifacts = [artifact for artifact in undecided if id(artifact) in free]
    if artifacts or draft.decision.reason != FORCED:
        return artifacts, frozenset()
    outside, told = absent(material, fitted)  # what stands frozen stays, but a plan's queries find more beside it
    found = outside or _as_one(told)
    return found, frozenset(artifact.artifact_id for artifact in found)


def _as_one(told: Sequence[TranscriptMessage]) -> list[Artifact]:
    """What was said, as the one artifact that a plain chat has: a plan's queries find more in it."""
    return [as_artifact(told)] if told else []
