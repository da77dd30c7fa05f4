"""Calibrations in memory, which the tests of the real store run against, too."""

from collections.abc import Mapping

from gateway.core.types.upstreams import ModelCalibration


class MemoryCalibrations:
    """Kept as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, ModelCalibration] = {}

    async def load(self) -> dict[str, ModelCalibration]:
        """All of them."""
        return dict(self._kept)

    async def save(self, learned: Mapping[str, ModelCalibration]) -> None:
        """Replaces those of these models."""
        self._kept |= learned
