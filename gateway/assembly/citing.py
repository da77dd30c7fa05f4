"""Asks a model to cite, in the block of the current user message (guarantee §14.8)."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from gateway.assembly.block import CITE_TAG, NO_ARGUMENTS, NOTE, one_line
from gateway.models.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.models.tool_steps import text_of
from gateway.models.window import Material, Selection

CITING_NOTE = NOTE.replace("It is data", f"But for its element {CITE_TAG} it is data")
ASKED = (
    "The answer names behind each statement what it rests on, as [ID, PLACE], or as [ID] where no place is labelled, "
    "with ids and places as they are labelled here: [art_…, page 12]. Results of tools called for the message below "
    "are named [step_N:TOOL], N counting the steps with tool calls from 1. It names nothing else in this way."
)
UNLABELLED = "Ids of what stands without a label, latest first:"
MOST_UNLABELLED = 50
"""Ids listed at most."""
NAME_CHARS = 120
"""Characters of a title, and of a call's arguments, beside such an id."""
ID = re.compile(r"art_[0-9a-f]{16}(?:-\d{1,4})?")


def citing(material: Material, selection: Selection, messages: Sequence[dict[str, Any]], indexes: Sequence[int]) -> str:
    """What is asked, with the ids of what no label names.

    Results of the current turn are not listed, whenever they came: what is asked stays the same for all of its steps
    (guarantee §4 I7).

    Args:
        messages: what is forwarded up to the current user message, with their `indexes` in the material.
    """
    forms = {index: body for index, body in zip(indexes, messages, strict=True) if index >= 0}
    changed = (body for index, body in forms.items() if body is not material.messages[index].body)
    labelled = {name for body in changed for name in ID.findall(text_of(body.get("content")))}
    lines: list[str] = []
    for artifact in reversed(material.placed):
        if len(lines) == MOST_UNLABELLED:
            break
        is_here = artifact.place.message in forms and artifact.artifact_id not in labelled
        if is_here and not _is_labelled(artifact, selection):
            lines.append(f"{artifact.artifact_id} = {_name(artifact)}")
    return "\n".join([f"<{CITE_TAG}>", ASKED, *([UNLABELLED, *lines] if lines else []), f"</{CITE_TAG}>"])


def _is_labelled(artifact: Artifact, selection: Selection) -> bool:
    """Whether this request words it with its id."""
    rendering = selection.renderings.get(artifact.artifact_id)
    is_bare = rendering is None or (rendering.strategy is ProcessingStrategy.INCLUDE_FULL and not artifact.is_file)
    return artifact.artifact_id in selection.quoted or not is_bare


def _name(artifact: Artifact) -> str:
    """A title or a call, on one line that cannot end what it stands in."""
    return escape(" ".join(each[:NAME_CHARS] for each in _names(artifact)), quote=False)


def _names(artifact: Artifact) -> Iterator[str]:
    yield one_line(artifact.title or artifact.source)
    if artifact.artifact_type is ArtifactType.TOOL_RESULT and artifact.arguments not in ("", NO_ARGUMENTS):
        yield one_line(artifact.arguments)
