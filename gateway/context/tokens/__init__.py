"""Counts tokens offline, and learns from what upstreams report."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.context.tokens.counter import CounterRegistry, TiktokenCounter
    from gateway.context.tokens.model_margins import ModelMargins, PromptReport, keep_calibrated
else:
    __getattr__ = lazy_face(__name__)
