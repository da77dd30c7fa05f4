"""Which other model answers (guarantee §12.7)."""

from typing import Any

import pytest

from gateway.core import errors
from gateway.core.config.setting_sections import RoutingSettings
from gateway.upstream.routing.health import has_fallbacks, instead_of, kind_of

SETTINGS = RoutingSettings(
    fallbacks={"a": ("b", "c"), "b": ("d", "a")},
    context_window_fallbacks={"a": ("long",)},
    content_policy_fallbacks={"a": ("mild",)},
    default_fallbacks=("any",),
    max_fallbacks=3,
)


def refused(status: int, **error: Any) -> errors.UpstreamRefused:
    return errors.UpstreamRefused(status, {"error": error}, {})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(500, message="oops"), "general"),
        (refused(429, message="slow down"), "general"),
        (errors.UpstreamTimeout("late"), "general"),
        (errors.UpstreamAuth("key"), "general"),
        (refused(400, message="unknown field"), None),
        (refused(404, message="no such model"), None),
        (refused(401, message="your key"), None),
        (errors.InvalidRequest("bad"), None),
        (errors.UpstreamOverflow({}, {}), "context_window"),
        (errors.ContextLengthExceeded("long"), "context_window"),
        (refused(400, code="content_policy_violation", message="no"), "content_policy"),
        (refused(400, code="content_filter", message="no"), "content_policy"),
        (refused(400, code=None, message="no", innererror={"code": "ResponsibleAIPolicyViolation"}), "content_policy"),
        (
            refused(
                400,
                message="The response was filtered due to the prompt triggering Azure OpenAI's content management"
                " policy.",
            ),
            "content_policy",
        ),
        (
            refused(400, type="invalid_request_error", message="Output blocked by content filtering policy"),
            "content_policy",
        ),
        (refused(400, message="Your request was rejected as a result of our safety system."), "content_policy"),
    ],
)
def test_what_an_error_calls_for(error: errors.GatewayError, kind: str | None) -> None:
    assert kind_of(error, SETTINGS) == kind


@pytest.mark.parametrize(
    ("asked", "failed", "kind", "tried", "found"),
    [
        ("a", "a", "general", ["a"], ("b", "c")),
        ("a", "b", "general", ["a", "b"], ("c", "d")),
        ("a", "c", "general", ["a", "b", "c"], ("any",)),
        ("a", "any", "general", ["a", "b", "c", "any"], ()),
        ("other", "other", "general", ["other"], ("any",)),
        ("a", "a", "context_window", ["a"], ("long",)),
        ("b", "b", "context_window", ["b"], ()),
        ("a", "b", "content_policy", ["a", "b"], ("mild",)),
        ("b", "b", "content_policy", ["b"], ()),
    ],
)
def test_s12_7_the_models_that_may_answer_instead(
    asked: str, failed: str, kind: Any, tried: list[str], found: tuple[str, ...]
) -> None:
    assert instead_of(asked, failed, kind, SETTINGS, tried) == found


def test_without_settings_nobody_answers_instead() -> None:
    assert not has_fallbacks(RoutingSettings())
    assert all(
        has_fallbacks(RoutingSettings.model_validate({name: {"a": "b"}}))
        for name in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
    )
