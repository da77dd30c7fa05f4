"""What DOCX files keep beside their text: the headings that styles stand for, and the numbers of lists."""

import re
from xml.etree import ElementTree

from gateway.documents.packages import attribute, child, children

HEADING = re.compile(r"(?:heading|überschrift|berschrift|titre|título|titolo|kop|rubrik)\s*([1-6])\Z", re.IGNORECASE)
TITLES = frozenset({"title", "titel"})
MOST_PARENTS = 10
"""Styles that a style may be based on, one on another."""
ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
SMALL_ROMAN = ((9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
LEVELS = 9


class Styles:
    """The styles of paragraphs by id."""

    def __init__(self, root: ElementTree.Element) -> None:
        self._styles = {attribute(style, "styleId"): style for style in children(root, "style")}

    def heading(self, style: str) -> str:
        """Markdown's signs of a heading, if the style is one."""
        for name in (style, *(attribute(each, "val") for each in self._found(style, "name"))):
            level = HEADING.match(name)
            if level or name.lower() in TITLES:
                return "#" * (int(level[1]) if level else 1) + " "
        return ""

    def numbering(self, style: str) -> ElementTree.Element | None:
        """The list that its paragraphs are part of."""
        return next(iter(self._found(style, "pPr", "numPr")), None)

    def _found(self, style: str, *path: str) -> list[ElementTree.Element]:
        """What the style and those that it is based on have there."""
        found = []
        for _ in range(MOST_PARENTS):
            node = self._styles.get(style)
            if node is None:
                break
            found.append(child(node, *path))
            style = _value(node, "basedOn")
        return [each for each in found if each is not None]


class Numbering:
    """Numbers the paragraphs of lists in their order."""

    def __init__(self, root: ElementTree.Element) -> None:
        abstract = {attribute(each, "abstractNumId"): each for each in children(root, "abstractNum")}
        self._levels = {
            attribute(number, "numId"): {
                int(attribute(level, "ilvl", "0")): level
                for group in (abstract.get(_value(number, "abstractNumId"), number), *children(number, "lvlOverride"))
                for level in children(group, "lvl")
            }
            for number in children(root, "num")
        }
        self._counts: dict[str, list[int]] = {}

    def label(self, properties: ElementTree.Element | None) -> str:
        """What stands before a paragraph with this `numPr`: `2.1 `, `- `, or nothing."""
        if properties is None:
            return ""
        number, depth = _value(properties, "numId"), _value(properties, "ilvl") or "0"
        levels = self._levels.get(number)
        level = min(int(depth), LEVELS - 1) if depth.isdigit() else 0
        if levels is None or level not in levels:
            return ""
        counts = self._counts.setdefault(number, [0] * LEVELS)
        counts[level] = counts[level] + 1 if counts[level] else _start(levels[level])
        counts[level + 1 :] = [0] * (LEVELS - level - 1)
        if _value(levels[level], "numFmt") == "bullet":
            return "  " * level + "- "
        shown = _value(levels[level], "lvlText")
        for each in range(level + 1):
            node = levels.get(each, levels[level])
            shown = shown.replace(f"%{each + 1}", _number(counts[each] or _start(node), _value(node, "numFmt")))
        return f"{shown} " if shown.strip() else ""


def _value(node: ElementTree.Element, name: str) -> str:
    found = child(node, name)
    return "" if found is None else attribute(found, "val")


def _start(level: ElementTree.Element) -> int:
    start = _value(level, "start")
    return int(start) if start.isdigit() and len(start) < 6 else 1


def _number(count: int, form: str) -> str:
    if form == "none":
        return ""
    if form in ("lowerLetter", "upperLetter"):
        letter = chr(ord("a") + (count - 1) % 26) * min(1 + (count - 1) // 26, 9)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        shown = ""
        for value, sign in ROMAN + SMALL_ROMAN:
            shown += sign * (count // value)
            count %= value
        return shown.upper() if form == "upperRoman" else shown
    return str(count)


def style_of(paragraph: ElementTree.Element) -> str:
    """The id of a paragraph's style."""
    properties = child(paragraph, "pPr")
    return "" if properties is None else _value(properties, "pStyle")
