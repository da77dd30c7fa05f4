"""A context-managing, OpenAI-compatible gateway."""

__version__ = "0.2.0"
