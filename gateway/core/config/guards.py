"""Who looks at what goes to models and comes from them, and what is masked in it (guarantee §12.9, §12.10)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from gateway.core.config.settings_fields import Seconds, SettingsSection
from gateway.core.names import did_you_mean

RULES = (*("private_key", "url", "password", "token", "jwt", "key", "email", "iban", "card", "ssn", "phone", "ip"),)
"""The rules that are built in, in the order in which they look."""


def _rule(name: str) -> str:
    if name not in RULES:
        raise ValueError(f"there is no such rule.{did_you_mean(name, RULES)}")
    return name


RuleName = Annotated[str, AfterValidator(_rule)]


class GuardEntry(BaseModel):
    """A guard, by the name of its entry point; what else stands here is for the guard itself."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=64, description="Its entry point in the group `gateway.guards`.")
    on_failure: Literal["open", "closed"] = Field(
        "closed", description="Whether requests pass (`open`) while it fails, is late or rests; else they get a 503."
    )
    timeout: Seconds = Field(2.0, description="Seconds that it may take each time.")
    hold: int = Field(
        200, ge=1, le=100_000, description="Characters of a streamed answer that it is shown at once, at the most."
    )

    @property
    def options(self) -> dict[str, Any]:
        """What the entry says to the guard itself."""
        return dict(self.model_extra or {})


class MaskRule(SettingsSection):
    """A rule of the operator's own."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]{0,15}$")] = Field(
        description="What its placeholders are called: capitals and digits."
    )
    pattern: str = Field(min_length=1, max_length=1000, description="What is masked, in RE2's syntax.")


class MaskingSettings(SettingsSection):
    """Secrets and personal data, replaced before anything goes to a model and put back in its answer."""

    enabled: bool = Field(False, description="Whether anything is masked.")
    rules: tuple[RuleName, ...] = Field(RULES, description="The rules that are used of those that are built in.")
    custom: tuple[MaskRule, ...] = Field((), description="Further rules, each with `name` and `pattern`.")
    on_unreadable: Literal["pass", "refuse"] = Field(
        "pass", description="What becomes of images, sounds and files, in which nothing can be masked."
    )
