"""Conversations that go direct, beside which economy is measured (guarantee §13.14)."""

from gateway.pipeline.features.holdout.dividing import Holdout as Holdout
