"""What is delivered to an agent of a conversation, in the sections that its assembler words (guarantee §11.2 to §11.4).
Whose turn it is, and who said what, are the core's: `core/types/agents.py`, `conversations/`."""

from gateway.pipeline.features.agents.sections import AgentSections

__all__ = ["AgentSections"]
