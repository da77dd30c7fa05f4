"""Builds the context that is sent to a model: gather (all I/O), decide, fit, economise, render. `economising.py` may
change the fitted window: it replaces old tool results by labels if that pays.

Read first: `manager.py` (the five steps) and `window/fit.py` (what gets the budget). `artifacts/` finds what may be
reduced, `planning/` decides whether to call a planner, `window/` packs, `assembly/` renders, `tokens/` counts. Never
calls the primary model, and never decides anything while it reads.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.context import internal_calls, whole_files
    from gateway.context.artifacts import collect
    from gateway.context.artifacts.lossless_compaction import compact
    from gateway.context.build import ContextHooks, PassageRanking, RequestRanking, WindowProposal
    from gateway.context.gather import INLINE_CHARS, ContextSources
    from gateway.context.manager import BuiltContext, ContextManager
    from gateway.context.planner import ContextPlanning, PlannerAccess, PlanResult
    from gateway.context.planning import artifact_decisions, decision
    from gateway.context.planning.summaries import PLAN_SECONDS, ArtifactSummarizer, SummaryCache
else:
    __getattr__ = lazy_face(__name__)
