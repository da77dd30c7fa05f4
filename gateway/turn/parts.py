"""What other packages give to the pipeline."""

from contextlib import nullcontext
from dataclasses import dataclass

from gateway.context.manager import ContextManager
from gateway.planning.loops import ToolLoops
from gateway.ports import Clock, Spans, Upstream
from gateway.ports.documents import FileStore
from gateway.storage.store import ConversationStore
from gateway.telemetry.hooks import Hooks
from gateway.telemetry.metrics import Metrics
from gateway.tokens.counter import CounterRegistry
from gateway.turn.hooks import NO_FEATURES, FeatureHooks
from gateway.turn.unstored_frames import UnstoredFrames
from gateway.upstream.routing.router import ConfiguredRouter


@dataclass(frozen=True, kw_only=True)
class PipelineParts:
    """All that a process has one of."""

    router: ConfiguredRouter
    upstream: Upstream
    store: ConversationStore
    files: FileStore
    context: ContextManager
    counters: CounterRegistry
    clock: Clock
    metrics: Metrics
    hooks: Hooks
    frames: UnstoredFrames | None = None
    """What models were sent of conversations that are not stored."""
    loops: ToolLoops | None = None
    """What is known of tool loops whose clients are not recognised."""
    spans: Spans = nullcontext
    features: FeatureHooks = NO_FEATURES
