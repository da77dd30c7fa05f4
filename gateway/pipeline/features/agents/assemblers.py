"""The assemblers: they word team task, context and message as each type of agent expects them (guarantee §11.2).

A section whose body is empty is not emitted. Third parties add types by entry points of the group
`context_gateway.assemblers`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from gateway.core.plugins import load_plugin
from gateway.core.types.agents import PLAIN, Assembler, AssemblerInput, AssemblerOutput, system_body

GROUP = "context_gateway.assemblers"


@dataclass(frozen=True, slots=True)
class SectionHeaders:
    """The line above each section; empty where a section has none."""

    system: str = ""
    team_task: str = ""
    context: str = ""
    message: str = ""


BRACKETED = SectionHeaders("[SYSTEM]", "[TEAM_TASK]", "[CONTEXT]", "[MESSAGE]")
IN_WORDS = SectionHeaders("Instructions:", "Team task:", "Conversation so far:", "User message:")
WITHOUT = SectionHeaders()


def claude_code(given: AssemblerInput) -> AssemblerOutput:
    """Sections in brackets; the instruction apart from them, as the system message."""
    system = system_body(given)
    made = _assembled(given, "", BRACKETED, len(system.encode()))
    return AssemblerOutput(made.prompt, system or None, made.dropped)


def openai_codex(given: AssemblerInput) -> AssemblerOutput:
    """Sections in brackets, the instruction as the first of them."""
    return _assembled(given, system_body(given), BRACKETED)


def google_gemini(given: AssemblerInput) -> AssemblerOutput:
    """Sections with headers in words, without brackets."""
    return _assembled(given, system_body(given), IN_WORDS)


def plain(given: AssemblerInput) -> AssemblerOutput:
    """Sections without headers: for agents of a type that nobody knows."""
    return _assembled(given, system_body(given), WITHOUT)


BUILT_IN: dict[str, Assembler] = {
    "claude-code": claude_code,
    "openai-codex": openai_codex,
    "google-gemini": google_gemini,
    PLAIN: plain,
}


def _assembled(given: AssemblerInput, system: str, headers: SectionHeaders, apart: int = 0) -> AssemblerOutput:
    """The sections in their order, with as much context as has room.

    Args:
        apart: bytes of what is sent beside them.
    """
    lines = [f"{message.speaker}: {message.content}" for message in given.context_messages]

    def prompt(context: Sequence[str]) -> str:
        bodies = (
            (headers.system, system),
            (headers.team_task, given.team_task or ""),
            (headers.context, "\n".join(context)),
            (headers.message, given.current_message),
        )
        return "\n\n".join(f"{header}\n{body}" if header else body for header, body in bodies if body.strip())

    whole = prompt(lines)
    free = [number for number, message in enumerate(given.context_messages) if not message.pinned]
    dropped = too_old([lines[number] for number in free], apart + len(whole.encode()), given.max_bytes)
    gone = frozenset(free[:dropped])
    kept = [line for number, line in enumerate(lines) if number not in gone]
    return AssemblerOutput(prompt(kept) if dropped else whole, dropped=dropped)


def too_old(lines: Sequence[str], size: int, max_bytes: int) -> int:
    """How many lines have to leave, the oldest first: the one trimmer of all assemblers.

    Args:
        lines: those that may leave.
        size: bytes of all sections with these lines.
    """
    count = 0
    while count < len(lines) and size > max_bytes:
        size -= len(lines[count].encode()) + 1
        count += 1
    return count


class AssemblerRegistry:
    """The assemblers by type. Those of third parties are loaded when a request first names a type that is not built
    in: looking for entry points takes longer than a request."""

    def __init__(self) -> None:
        self._added: dict[str, Assembler | None] | None = None

    def of(self, agent_type: str) -> Assembler | None:
        """The assembler of that type; None if nobody knows it."""
        return BUILT_IN.get(agent_type) or self._of_third_parties().get(agent_type)

    def _of_third_parties(self) -> dict[str, Assembler | None]:
        if self._added is None:
            self._added = {}
            for entry in entry_points(group=GROUP):
                try:
                    self._added[entry.name] = load_plugin(entry)
                except Exception:  # noqa: BLE001 - code of others may fail in any way, and costs its type alone
                    self._added[entry.name] = None
        return self._added
