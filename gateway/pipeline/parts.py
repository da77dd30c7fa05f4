"""The objects of other packages that the pipeline is made of."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass

from gateway.context import ContextManager, decision
from gateway.context.tokens import CounterRegistry
from gateway.core import ports
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types.chat import ModelDeployment
from gateway.documents import AttachmentReader
from gateway.pipeline.stages import NO_FEATURES, FeatureHooks
from gateway.pipeline.unstored_frames import UnstoredFrames
from gateway.storage import ConversationStore
from gateway.upstream.routing import ConfiguredRouter


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """The clock, metrics, hooks and spans of a process."""

    clock: ports.Clock
    metrics: GatewayMetrics
    hooks: TelemetryHooks
    spans: ports.Spans = nullcontext


@dataclass(frozen=True, kw_only=True)
class PipelineParts(Instruments):
    """The objects of which a process has one each, its instruments among them."""

    router: ConfiguredRouter
    upstream: ports.Upstream
    ready: Callable[[ModelDeployment], Awaitable[None]]
    """Loads what calls a deployment."""
    store: ConversationStore
    files: ports.FileStore
    attachments: AttachmentReader
    context: ContextManager
    counters: CounterRegistry
    frames: UnstoredFrames | None = None
    """What models were sent in conversations that are not stored."""
    loops: decision.ToolLoops | None = None
    """What is known of tool loops whose clients are not recognised."""
    features: FeatureHooks = NO_FEATURES
