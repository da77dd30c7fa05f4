"""Files that are kept here, put in where messages name them by ids that no upstream knows (guarantee §14.6)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway.core.types.content_parts import map_parts
from gateway.core.types.items import named_file, named_picture

NOTHING: Mapping[str, dict[str, Any]] = {}


class OwnFiles(NamedTuple):
    """What goes up in the place of ids: of `files` as `file` parts hold them, of `pictures` the whole part."""

    files: Mapping[str, dict[str, Any]] = NOTHING
    pictures: Mapping[str, dict[str, Any]] = NOTHING


NO_OWN_FILES = OwnFiles()


def with_own_files(messages: Sequence[dict[str, Any]], own: OwnFiles) -> list[dict[str, Any]]:
    """The messages with these files in the place of their ids. The same files give the same JSON each time."""
    return [map_parts(message, lambda part: _part(part, own)) for message in messages]


def _part(part: dict[str, Any], own: OwnFiles) -> dict[str, Any]:
    name, picture = named_file(part), named_picture(part)
    if name is not None and name in own.files:
        return {**part, "file": own.files[name]}
    return _picture(part, own.pictures[picture]) if picture is not None and picture in own.pictures else part


def _picture(part: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a picture, with all else that its part says."""
    rest = {name: value for name, value in part.items() if name not in ("type", "file_id", "image_url", "detail")}
    if "image_url" in shown and part.get("detail") is not None:
        return {**shown, "image_url": {**shown["image_url"], "detail": part["detail"]}, **rest}
    return {**shown, **rest}
