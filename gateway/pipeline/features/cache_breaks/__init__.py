"""Tells why a provider read less from its prompt cache than what was forwarded before promises (guarantee §6.11)."""

from gateway.pipeline.features.cache_breaks.telling import CacheBreaks

__all__ = ["CacheBreaks"]
