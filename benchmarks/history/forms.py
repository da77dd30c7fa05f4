"""The ways in which clients continue a conversation, each of which is measured."""

from dataclasses import dataclass
from typing import Literal

WINDOW = 900
"""Tokens of a prompt: what 20 messages more than fill, so that a turn of either conversation fills it."""


@dataclass(frozen=True)
class Form:
    """One way. `named`: how the request names its conversation; `sent`: what it sends of it (`said`: all but the tool
    steps of earlier turns); `window`: the prompt's limit in tokens, None for the model's own 400,000."""

    name: str
    title: str
    named: Literal["id", "session"] | None
    sent: Literal["delta", "all", "said"]
    agent: bool = False
    window: int | None = WINDOW

    @property
    def resends(self) -> bool:
        """Whether a longer conversation makes a longer request."""
        return self.sent != "delta"


FORMS = (
    Form("id", "chat, by id, new message alone", "id", "delta"),
    Form("session", "chat, by session, new message alone", "session", "delta"),
    Form("id-all", "chat, by id, everything sent again", "id", "all"),
    Form("all", "chat, without id, everything sent again", None, "all"),
    Form("agent-id", "agent, by id, new messages alone", "id", "delta", agent=True),
    Form("agent-id-all", "agent, by id, everything sent again", "id", "all", agent=True),
    Form("agent-all", "agent, without id, everything sent again", None, "all", agent=True),
    Form("agent-id-said", "agent, by id, old tool steps dropped", "id", "said", agent=True),
    Form("agent-said", "agent, without id, old tool steps dropped", None, "said", agent=True),
    Form("id-wide", "chat, by id, window of 400,000 tokens", "id", "delta", window=None),
)
