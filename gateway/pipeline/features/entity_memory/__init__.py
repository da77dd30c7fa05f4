"""The memory of entities, which APIs call things: how they are called, how a question names them, and what tools tell
of them (guarantee §11.14 to §11.17)."""

from gateway.pipeline.features.entity_memory.feature import EntityMemory, aliases_of, noted, ranked, search_of

__all__ = ["EntityMemory", "aliases_of", "noted", "ranked", "search_of"]
