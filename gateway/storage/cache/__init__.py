"""Caches in memory and in Redis."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage.cache.frame_cache import FrameCache
    from gateway.storage.cache.memory_cache import MemoryCache, open_cache
    from gateway.storage.cache.redis import reach_cache
else:
    __getattr__ = lazy_face(__name__)
