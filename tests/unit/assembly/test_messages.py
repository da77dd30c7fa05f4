"""How chosen renderings become messages (contract §4)."""

from typing import Any

import pytest

from gateway.artifacts.collect import extract_artifacts_from_messages
from gateway.assembly.messages import assemble
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.selection import Material, Rendering, Selection
from tests.unit.making import assistant, stored, tool, user

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("long", "short"),
        ([{"type": "text", "text": "long"}], "short"),
        ([{"type": "text", "text": "long"}, PICTURE], [{"type": "text", "text": "short"}, PICTURE]),
    ],
    ids=["string", "text part", "picture"],
)
def test_a_picture_beside_a_reduced_result_stays(content: Any, expected: Any) -> None:
    messages = tuple(stored([user("q"), assistant(None, "c"), tool("c", content)]))
    (artifact,) = extract_artifacts_from_messages(messages, 0)
    material = Material(instructions=(), messages=messages, current=0, placed=(artifact,))
    rendering = Rendering(artifact, ProcessingStrategy.INCLUDE_FULL, text="short")
    forwarded = assemble(material, Selection(renderings={artifact.artifact_id: rendering}))
    assert forwarded.messages[2]["content"] == expected
