"""Takes one request from its arrival to its commit, and runs the features that act on it.

Read first: `pipeline.py` (prepare, ask, settle) and `attempts.py` (each target, and what follows a failure).
`stages.py` defines the stages of a request: prepared, attempted, settled. The features in `features/` and `guards/` act
at those stages; the pipeline imports none of them. Never speaks HTTP, and never holds a database session while it
waits for a model.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.pipeline import turn_replays
    from gateway.pipeline.billing import BEAT_SECONDS
    from gateway.pipeline.features import entity_memory
    from gateway.pipeline.features.prompt_profiles import ProfileComposer
    from gateway.pipeline.idempotency import HEARTBEAT_SECONDS, IdempotencyGate, RunPermit
    from gateway.pipeline.parts import Instruments
    from gateway.pipeline.passthrough_bills import MeteredCall, RelayedBills
    from gateway.pipeline.pipeline import LimitedPipeline, Pipeline, StreamedAnswer, WholeCompletion
    from gateway.pipeline.settlement import RunningTurns
    from gateway.pipeline.stages import PausedRequest, not_paused
    from gateway.pipeline.wiring import WiredPipeline
else:
    __getattr__ = lazy_face(__name__)
