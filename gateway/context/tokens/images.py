"""What a picture costs in tokens, by the provider's published formula (guarantee §4 I1)."""

import base64
import binascii
import io
from math import ceil, isqrt
from typing import Any

from gateway.core.bounded_cache import BoundedCache
from gateway.core.types.provider_facts import PatchedPictures, ScaledPictures, family_of

HEADER_BYTES = 96 * 1024
PIXELS_PER_BYTE = 16
"""More than pictures of anything have."""
BYTES_OF_BASE64 = 3
"""In four characters."""
TILE, LONG_SIDE, SHORT_SIDE, MAX_TILES = 512, 2048, 768, 8
PATCH, MAX_PATCHES = 32, 1536
LOW_DETAIL = "low"
MAX_REMEMBERED = 10_000
Size = tuple[int, int]
"""Width and height in pixels."""


def image_tokens(image: Any, model: str) -> int:
    """Tokens of an `image_url` part's picture; of one whose size is not known here (an address),
    the most that the formula can give.

    Args:
        image: the part's `image_url`, an object with `url` and `detail`, or the address itself.
        model: the model's name, with or without its provider.
    """
    detail = image.get("detail") if isinstance(image, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    return picture_tokens(picture_size(url) if isinstance(url, str) else None, model, detail)


class KnownPictures:
    """Sizes of pictures that are kept here, by the ids that parts name; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: BoundedCache[str, Size] = BoundedCache(MAX_REMEMBERED)

    def put(self, file_id: str, size: Size) -> None:
        """Remembers one."""
        self._known.put(file_id, size)

    def tokens(self, part: dict[str, Any], file_id: str, model: str) -> int:
        """Tokens of an `input_image` part; the most that the formula can give where its size is not known."""
        return picture_tokens(self._known.peek(file_id), model, part.get("detail"))


def picture_tokens(size: Size | None, model: str, detail: Any = None) -> int:
    """Tokens of a picture of this size, `None` where nobody knows it."""
    costs = family_of(model).pictures
    if isinstance(costs, ScaledPictures):
        return _scaled(size, costs)
    if isinstance(costs, PatchedPictures):
        return ceil(_patches(size) * costs.factor)
    return costs.base if detail == LOW_DETAIL else costs.base + costs.tile * _tiles(size)


def picture_size(url: str) -> Size | None:
    """Width and height of a data URL's picture, from its header alone; of one that cannot be read, which no provider
    can show its model, a square that so many bytes could hold."""
    header, comma, _ = url[:200].partition(",")
    if not header.startswith("data:") or not comma or "base64" not in header:
        return None
    start = len(header) + 1
    import imagesize

    try:
        raw = base64.b64decode(url[start : start + HEADER_BYTES // 3 * 4])
        width, height = imagesize.get(io.BytesIO(raw))
    except (binascii.Error, ValueError, OSError, KeyError, IndexError, OverflowError):
        width = height = -1
    if width <= 0 or height <= 0:
        width = height = max(1, isqrt((len(url) - start) * BYTES_OF_BASE64 // 4 * PIXELS_PER_BYTE))
    return int(width), int(height)


def _tiles(size: Size | None) -> int:
    if size is None:
        return MAX_TILES
    width, height = _within(size, LONG_SIDE)
    if min(width, height) > SHORT_SIDE:
        scale = SHORT_SIDE / min(width, height)
        width, height = width * scale, height * scale
    return ceil(width / TILE) * ceil(height / TILE)


def _patches(size: Size | None) -> int:
    if size is None:
        return MAX_PATCHES
    return min(MAX_PATCHES, ceil(size[0] / PATCH) * ceil(size[1] / PATCH))


def _scaled(size: Size | None, costs: ScaledPictures) -> int:
    if size is None:
        return costs.most
    width, height = _within(size, costs.long_side)
    return min(costs.most, ceil(width * height / costs.pixels_per_token))


def _within(size: Size, side: int) -> tuple[float, float]:
    scale = min(1.0, side / max(size))
    return size[0] * scale, size[1] * scale
