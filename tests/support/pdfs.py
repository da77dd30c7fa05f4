"""PDFs as programs make them: with photos, scanned, encrypted, damaged."""

import io
import random

from PIL import Image, ImageDraw, ImageFont
from pypdf import PdfWriter
from reportlab import rl_config
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

A4 = (595.2756, 841.8898)
rl_config.useA85 = 0
"""Streams as bytes: to write them as text, as reportlab would, takes ten times as long as all else."""


def with_photos(texts: list[str], side: int = 100) -> bytes:
    """A page for each text, with a photo, which does not compress, below it."""
    out, rng = io.BytesIO(), random.Random(7)
    canvas = Canvas(out, pagesize=A4)
    for text in texts:
        for number, line in enumerate(text.split("\n")):
            canvas.drawString(50, 800 - 12 * number, line)
        photo = io.BytesIO()
        Image.frombytes("L", (side, side), rng.randbytes(side * side)).save(photo, "JPEG", quality=95)
        photo.seek(0)
        canvas.drawImage(ImageReader(photo), 50, 50, 300, 300)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def scanned(texts: list[str]) -> bytes:
    """A page for each text that is a picture of it, as a scanner makes it; a page with text where it begins with a
    `!`."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for text in texts:
        if text.startswith("!"):
            canvas.drawString(50, 800, text[1:])
        else:
            picture = Image.new("L", (1240, 1754), 255)
            ImageDraw.Draw(picture).text((100, 200), text, fill=0, font=ImageFont.load_default(48))
            canvas.drawImage(ImageReader(picture), 0, 0, *A4)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def encrypted(raw: bytes, password: str = "") -> bytes:
    """By AES-256; anybody can open it where the password is empty."""
    writer, out = PdfWriter(clone_from=io.BytesIO(raw)), io.BytesIO()
    writer.encrypt(password, owner_password="the owner's", algorithm="AES-256")
    writer.write(out)
    return out.getvalue()


def pictured(texts: list[str], form: str) -> bytes:
    """A picture of each text, as a file of this format of Pillow's, such as `PNG`; several as the pages of a TIFF."""
    first, *others = (_picture(text) for text in texts)
    out = io.BytesIO()
    if others:
        first.save(out, form, save_all=True, append_images=others)
    else:
        first.save(out, form)
    return out.getvalue()


def _picture(text: str) -> Image.Image:
    picture = Image.new("L", (900, 300), 255)
    ImageDraw.Draw(picture).text((40, 100), text, fill=0, font=ImageFont.load_default(48))
    return picture
