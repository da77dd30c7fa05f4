"""A context-managing, OpenAI-compatible gateway."""

__version__ = "0.1.0"
