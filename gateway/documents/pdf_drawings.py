"""Whether a page of a PDF holds a picture: an image, or a drawing such as a chart, which is made of paths."""

import ctypes
from typing import Any

PICTURE_SHARE = 0.02
"""Of a page's area: a smaller picture is a trifle."""
MOST_OBJECTS = 500
"""Images and paths of a page that are looked at."""
MOST_SEGMENTS = 2000
"""Of all paths of a page together: they take some milliseconds."""
LEAST_SIDE = 15.0
"""Points of a path's shorter side; what is smaller is a bullet or an icon."""
SLANTED_SHARE = 0.5
"""Of a path's width that its curves and slanted lines must cover: those at a box's rounded corners cover less."""
LEAST_SMALL = 50
"""Small paths with curves or slanted lines that make a drawing together, such as a map, or a text made of outlines."""
LEAST_BARS = 3
"""Filled boxes of different lengths that begin at one line: bars of a chart. Those of a table are of one length."""
MOST_BAR = 0.7
"""Of a page's width; a longer one is the ground of a heading or a row."""
LEVEL = 0.1
"""Points by which the ends of a level line may differ."""

Bounds = tuple[float, float, float, float]


def has_picture(page: Any, width: float, height: float) -> bool:
    """Whether an image, or a drawing, fills more than a trifle of the page.

    Args:
        page: PDFium's; `width`, `height`: its size in points.
    """
    import pypdfium2.raw as pdfium

    least = PICTURE_SHARE * width * height
    left_to_see = MOST_SEGMENTS
    small: list[Bounds] = []
    bars: dict[tuple[str, int], set[int]] = {}
    kinds = [pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_PATH]
    for number, each in enumerate(page.get_objects(filter=kinds, max_depth=3)):
        if number == MOST_OBJECTS:
            break
        left, bottom, right, top = bounds = each.get_bounds()
        if each.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            if (right - left) * (top - bottom) > least:
                return True
            continue
        slanted, seen = _slanted_width(each.raw, left_to_see)
        left_to_see -= seen
        if slanted and min(right - left, top - bottom) >= LEAST_SIDE and slanted >= SLANTED_SHARE * (right - left):
            if (right - left) * (top - bottom) > least:
                return True
        elif slanted:
            small.append(bounds)
            if len(small) >= LEAST_SMALL and _area(small) > least:
                return True
        elif right - left < width * MOST_BAR and _is_filled(each.raw):
            upright = bars.setdefault(("bottom", round(bottom)), set())
            level = bars.setdefault(("left", round(left)), set())
            upright.add(round(top - bottom))
            level.add(round(right - left))
            if max(len(upright), len(level)) >= LEAST_BARS:
                return True
    return False


def _slanted_width(path: Any, most: int) -> tuple[float, int]:
    """Points to the side that the curves and slanted lines of a path go, and how many of its segments were looked at:
    at most so many."""
    import pypdfium2.raw as pdfium

    x, y = ctypes.c_float(), ctypes.c_float()
    before: tuple[float, float] | None = None
    found, number = 0.0, 0
    for number in range(min(most, max(0, pdfium.FPDFPath_CountSegments(path)))):
        segment = pdfium.FPDFPath_GetPathSegment(path, number)
        if not pdfium.FPDFPathSegment_GetPoint(segment, x, y):
            break
        here = (x.value, y.value)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if before is not None and kind != pdfium.FPDF_SEGMENT_MOVETO:
            aside, up = abs(here[0] - before[0]), abs(here[1] - before[1])
            if kind == pdfium.FPDF_SEGMENT_BEZIERTO or (aside > LEVEL and up > LEVEL):
                found += aside
        before = here
    return found, number


def _is_filled(path: Any) -> bool:
    import pypdfium2.raw as pdfium

    mode, stroke = ctypes.c_int(), pdfium.FPDF_BOOL()
    return bool(pdfium.FPDFPath_GetDrawMode(path, mode, stroke)) and mode.value != pdfium.FPDF_FILLMODE_NONE


def _area(bounds: list[Bounds]) -> float:
    """Of the box around them all."""
    lefts, bottoms, rights, tops = zip(*bounds, strict=True)
    return float((max(rights) - min(lefts)) * (max(tops) - min(bottoms)))
