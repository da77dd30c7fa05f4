"""Which of the gateway's own fields a client may have meant (guarantee §1.13)."""

import pytest

from gateway.core.names import has_nul, near_miss


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("attachment", "attachments"),
        ("attachement", "attachments"),
        ("attachment_ids", "attachments"),
        ("conversation_id", "conversation"),
        ("conversationId", "conversation"),
        ("agents", "agent"),
        ("agent_name", "agent"),
        ("contex", "context"),
        ("context_mode", "context"),
        ("max_input_token", "context.max_input_tokens"),
        *((name, None) for name in ("context", "context_management", "content", "metadata", "messages", "models")),
        *((name, None) for name in ("max_tokens", "max_output_tokens", "max_completion_tokens", "", "x" * 10_000)),
        *(
            (name, None)
            for name in ("reasoning", "response_format", "session_affinity", "context_length_exceeded_behavior")
        ),
    ],
)
def test_s1_13_what_was_meant(name: str, meant: str | None) -> None:
    assert near_miss(name) == meant


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), False),
        ((None, ""), False),
        (("conv_1", "session"), False),
        (("\x00",), True),
        ((None, "a", "b\x00c"), True),
    ],
)
def test_a_nul_is_found_in_whichever_name_holds_it(names: tuple[str | None, ...], expected: bool) -> None:
    assert has_nul(*names) is expected
