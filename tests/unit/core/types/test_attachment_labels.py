"""A title and a source are stored, so they have a limit (guarantee §2)."""

import pytest
from pydantic import ValidationError

from gateway.core.types.artifacts import MAX_LABEL, RequestAttachment


@pytest.mark.parametrize("field", ["title", "source"])
def test_s2_a_label_has_a_limit(field: str) -> None:
    RequestAttachment.model_validate({"content": "x", field: "a" * MAX_LABEL})
    with pytest.raises(ValidationError) as raised:
        RequestAttachment.model_validate({"content": "x", field: "a" * (MAX_LABEL + 1)})
    assert raised.value.errors()[0]["loc"] == (field,)
