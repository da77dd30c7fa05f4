"""How chosen renderings become messages (guarantee §4)."""

from typing import Any

import pytest

from gateway.context.artifacts.collect import documents_in_messages, extract_artifacts_from_messages, with_documents
from gateway.context.assembly.render import assemble
from gateway.core.types.artifacts import ProcessingStrategy
from gateway.core.types.window import ArtifactRendering, WindowInputs, WindowSelection
from tests.unit.making import assistant, stored, tool, user

MARKED = {"cache_control": {"type": "ephemeral"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("long", "short"),
        ([{"type": "text", "text": "long"}], "short"),
        ([{"type": "text", "text": "long"}, PICTURE], [{"type": "text", "text": "short"}, PICTURE]),
        (
            [{"type": "text", "text": "lo"}, {"type": "text", "text": "ng", **MARKED}],
            [{"type": "text", "text": "short", **MARKED}],
        ),
    ],
    ids=["string", "text part", "picture", "breakpoint"],
)
def test_a_picture_beside_a_reduced_result_stays_and_a_breakpoint_on_it(content: Any, expected: Any) -> None:
    messages = tuple(stored([user("q"), assistant(None, "c"), tool("c", content)]))
    (artifact,) = extract_artifacts_from_messages(messages, 0)
    material = WindowInputs(instructions=(), messages=messages, current=0, placed=(artifact,))
    rendering = ArtifactRendering(artifact, ProcessingStrategy.INCLUDE_FULL, text="short")
    forwarded = assemble(material, WindowSelection(renderings={artifact.artifact_id: rendering}))
    assert forwarded.messages[2]["content"] == expected


FILE: Any = {"type": "file", "file": {"filename": "a.txt", "file_data": "eA=="}}


def test_s14_14_a_document_in_a_result_that_is_shown_in_full_keeps_what_it_was() -> None:
    """For an upstream that takes it as such; one that is reduced is part of the result's one text."""
    content = [{"type": "text", "text": "Read:"}, {**FILE, **MARKED}, PICTURE]
    messages = tuple(stored([user("q"), assistant(None, "c"), tool("c", content)]))
    found = extract_artifacts_from_messages(messages, 0)
    (artifact,) = with_documents(found, messages, {(2, 1): "x"})
    assert artifact.content == "Read:\n[file a.txt]\nx"
    material = WindowInputs(instructions=(), messages=messages, current=0, placed=(artifact,))

    def shown(text: str) -> Any:
        rendering = ArtifactRendering(artifact, ProcessingStrategy.INCLUDE_FULL, text=text)
        return assemble(material, WindowSelection(renderings={artifact.artifact_id: rendering})).messages[2]["content"]

    kept = {"type": "text", "text": "[file a.txt]\nx", "native_block": content[1], **MARKED}
    assert shown(artifact.content) == [content[0], kept, PICTURE]
    assert shown("short") == [{"type": "text", "text": "short", **MARKED}, PICTURE]


def test_s4_i7_a_breakpoint_on_a_file_stays_on_what_stands_for_it() -> None:
    messages = tuple(stored([user([{**FILE, **MARKED}, {"type": "text", "text": "q"}])]))
    (artifact,) = documents_in_messages(messages, 0, 8000, {(0, 0): "x"})
    material = WindowInputs(instructions=(), messages=messages, current=0, placed=(artifact,))
    rendering = ArtifactRendering(artifact, ProcessingStrategy.INCLUDE_FULL, text="x")
    forwarded = assemble(material, WindowSelection(renderings={artifact.artifact_id: rendering}))
    shown, question = forwarded.messages[0]["content"]
    assert shown["type"] == "text"
    assert shown["cache_control"] == {"type": "ephemeral"}
    assert question == {"type": "text", "text": "q"}
