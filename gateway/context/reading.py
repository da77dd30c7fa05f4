"""Reads all that a context is made of before it is made: what was forwarded before, files, regions of documents."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.artifacts.files import Arrived, FilePlace
from gateway.artifacts.pins import with_whole_steps
from gateway.artifacts.steps_as_text import steps_as_text
from gateway.assembly.messages import without_items
from gateway.context.collect import NO_EARLIER, ContextInput, Files
from gateway.context.large_documents import with_excerpts
from gateway.context.native_files import NO_FILES, NativeFiles, Stays
from gateway.context.native_pages import with_kept_pages
from gateway.context.planner import PlannerAccess
from gateway.history.frames import as_frozen
from gateway.models.conversation import ConversationMessage, History
from gateway.models.exchange import ChatRequest
from gateway.models.recall import own_tools
from gateway.ports.documents import LargeTexts
from gateway.window.budget import Budget


class InputReader:
    """Reads what requests' contexts are made of."""

    def __init__(self, large: LargeTexts | None) -> None:
        self._large = large

    async def read(
        self,
        request: ChatRequest,
        history: History,
        budget: Budget,
        access: PlannerAccess,
        natives: NativeFiles,
        stays: Stays = Stays.ALL,
    ) -> ContextInput:
        """All that has to be read before the context is made.

        Args:
            stays: which PDFs are forwarded as they came.

        Raises:
            InvalidRequest: a `file` part holds no readable document; names the part.
            StorageUnavailable: a file or a document cannot be read now.
        """
        if self._large is not None and any(each.is_excerpt for each in history.attachments):
            history = await with_excerpts(history, self._large, request.caller.tenant)
        tools = own_tools(request.forward) if request.options.recall else request.forward.get("tools")
        has_tools = bool(tools or request.forward.get("functions"))
        origin = access.deployment.origin if access.deployment else None
        frozen = with_whole_steps(as_frozen(history))
        if any(m.rendered is not None and isinstance(m.rendered.get("content"), list) for m in frozen.messages):
            frozen = await with_kept_pages(frozen, natives)
        steps = steps_as_text(frozen, without_items, has_tools=has_tools, origin=origin)
        native = NO_FILES
        if stays is not Stays.NONE:
            native = await natives.of(steps.history, stays, counted=budget.tokens is not None)
        sent, kept = await _texts(
            natives, steps.history.messages, Arrived(steps.history.stored, request.messages), native
        )
        as_text, kept_as_text = await _texts(natives, steps.results, Arrived(len(steps.results), request.messages))
        steps = steps.with_documents(as_text)
        older = (steps.history.earlier or NO_EARLIER).messages
        earlier, kept_earlier = await _texts(natives, older, Arrived(len(older), request.messages))
        pins = steps.history.older_kept
        pinned, kept_pinned = await _texts(natives, pins, Arrived(len(pins), request.messages))
        cached = tuple(dict.fromkeys((*kept, *kept_as_text, *kept_earlier, *kept_pinned, *natives.digests)))
        files = Files(sent, earlier, cached, pinned, native, natives.contents(native) if native else {})
        return ContextInput(request, steps, natives.facts, budget, files)


async def _texts(
    natives: NativeFiles,
    messages: Sequence[ConversationMessage],
    arrived: Arrived,
    natively: Mapping[FilePlace, dict[str, Any]] = NO_FILES,
) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
    """The texts of the files in messages, and the digests of contents of which the cache keeps something."""
    return await natives.files.read(
        messages,
        arrived,
        natives.caller,
        decode_pdf=True,
        keep=natives.tenant is not None,
        natively=natively,
        known=natives.known,
    )
