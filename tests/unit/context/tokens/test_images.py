"""Pictures by the providers' published formulas (guarantee §4 I1), sized by their headers alone."""

import base64
import struct
import zlib

import pytest

from gateway.context.tokens.counter import image_tokens


def png(width: int, height: int) -> str:
    """A data URL with the header of a PNG of that size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    raw = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return "data:image/png;base64," + base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("width", "height", "model", "tokens"),
    [
        (1024, 1024, "gpt-4o", 85 + 4 * 170),  # the example of OpenAI's guide
        (2048, 4096, "gpt-4o", 85 + 6 * 170),  # the other one
        (1, 1, "openai/gpt-4.1", 85 + 170),
        (4096, 8192, "gpt-4o", 85 + 6 * 170),
        (1024, 1024, "gpt-5", 70 + 4 * 140),
        (1024, 1024, "o3", 75 + 4 * 150),
        (1024, 1024, "gpt-4.1-mini", 1659),  # 1024 patches * 1.62
        (4000, 4000, "gpt-5-nano", 3779),  # capped at 1536 patches
        (1000, 1000, "anthropic/claude-sonnet-4-5", 1334),
        (100, 100, "claude-opus-4-1", 14),
        (100, 100, "some/llava", 85 + 170),
    ],
)
def test_a_picture_of_known_size(width: int, height: int, model: str, tokens: int) -> None:
    assert image_tokens({"url": png(width, height)}, model) == tokens


@pytest.mark.parametrize(
    "head", ["DATA:image/png;base64,", "data:IMAGE/PNG;BASE64,", "Data:image/png;charset=x;Base64,"]
)
def test_a_data_url_has_no_case(head: str) -> None:
    url = head + png(1024, 1024).partition(",")[2]
    assert image_tokens({"url": url}, "gpt-4o") == 85 + 4 * 170


@pytest.mark.parametrize("url", ["https://example.invalid/a.png", "data:,x"])
def test_a_picture_of_unknown_size_costs_the_most(url: str) -> None:
    assert image_tokens({"url": url}, "gpt-4o") == 85 + 8 * 170
    assert image_tokens(url, "gpt-4o") == 85 + 8 * 170


@pytest.mark.parametrize(("chars", "tiles"), [(0, 1), (4, 1), (20_000, 1), (100_000, 4), (4_000_000, 4)])
def test_a_picture_that_cannot_be_read_costs_what_so_many_bytes_could_hold(chars: int, tiles: int) -> None:
    assert image_tokens({"url": "data:image/png;base64," + "A" * chars}, "gpt-4o") == 85 + tiles * 170


def test_low_detail_costs_the_base_alone() -> None:
    assert image_tokens({"url": png(4000, 4000), "detail": "low"}, "gpt-4o") == 85


@pytest.mark.parametrize("image", [None, 5, {}, {"url": 7}, {"url": None, "detail": ["low"]}])
def test_what_is_no_picture_is_no_error(image: object) -> None:
    assert image_tokens(image, "gpt-4o") == 85 + 8 * 170
