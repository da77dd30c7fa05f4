"""Scans: pages that are pictures of text, at 200 dpi, a little crooked and noisy."""

import io
import textwrap

from PIL import Image, ImageDraw, ImageFont

from evals.corpus.facts import Place, sections
from evals.corpus.samples import Sample

DPI = 200
PAGES = 5
SIZE = (1654, 2339)


def samples() -> list[Sample]:
    """A PDF of pictures alone: it needs OCR."""
    told = sections(41, PAGES, 330)
    noise = Image.effect_noise(SIZE, 18)
    pages = [_page([each.title, *_lines(each.text)], noise) for each in told]
    out = io.BytesIO()
    first, *rest = pages
    first.save(out, "PDF", save_all=True, append_images=rest, resolution=DPI)
    place = Place("page", str(PAGES))
    asked = (told[-1].fact("scan", place), told[-2].fact("scan", Place("page", str(PAGES - 1))))
    scan = Sample("scan.pdf", "application/pdf", out.getvalue(), asked, needs="tesseract")
    return [scan]


def _lines(text: str, width: int = 80) -> list[str]:
    return textwrap.wrap(text, width)


def _page(lines: list[str], noise: Image.Image) -> Image.Image:
    page = Image.new("L", SIZE, 250)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(32)
    for number, line in enumerate(lines):
        pen.text((130, 140 + number * 46), line, fill=25, font=font)
    crooked = page.rotate(0.4, fillcolor=250, resample=Image.Resampling.BILINEAR)
    return Image.blend(crooked, noise, 0.08)
