"""Where a feature acts on the making of a context (ADR 35). Those of a whole request are in `pipeline/hooks.py`."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass

from gateway.context.build import RequestRanking, WindowProposal
from gateway.context.gather import OnForwarded
from gateway.context.whole_files import NativeFiles
from gateway.core.ports import Spans
from gateway.core.types.window import ShownPages

OnProposal = Callable[[WindowProposal, NativeFiles, RequestRanking], Awaitable[tuple[ShownPages, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextHooks:
    """What is done at each point; unless set: nothing.

    Attributes:
        on_forwarded: the conversation as it was forwarded before, and the PDFs of the request; the same, changed.
        on_proposal: the context without a plan; pages of PDFs that are to stand beside its block.
        on_step: what stands around the steps `plan` and `fit`; a trace has a span there.
    """

    on_forwarded: OnForwarded | None = None
    on_proposal: OnProposal | None = None
    on_step: Spans = nullcontext


NO_HOOKS = ContextHooks()
