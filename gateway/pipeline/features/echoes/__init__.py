"""Takes out of answers what their agent repeats of its question (guarantee §11.2)."""

from gateway.pipeline.features.echoes.stripping import build

__all__ = ["build"]
