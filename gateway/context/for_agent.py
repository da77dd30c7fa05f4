"""What an agent reads in place of the messages: the sections that its assembler words (guarantee §11)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gateway.assembly.agents import Assemblers, plain
from gateway.config.settings import ContextSettings
from gateway.context.report import BuiltContext
from gateway.errors import InvalidRequest
from gateway.history.speakers import Delivery, deliver
from gateway.models.agents import Agent, Assembler, AssemblerInput, AssemblerOutput, system_body
from gateway.models.conversation import ConversationMessage, History, new_message
from gateway.telemetry.logs import get_logger

log = get_logger("gateway.context.for_agent")
UNKNOWN_TYPE, FAILED = "agent_type_unknown", "agent_assembler_failed"
Fits = Callable[[list[dict[str, Any]]], bool]


@dataclass(frozen=True, slots=True)
class ForAgent:
    """A conversation as an agent reads it. `excluded`: how many messages stand in none of its sections."""

    history: History
    excluded: int
    warnings: tuple[str, ...] = ()

    def told(self, built: BuiltContext) -> BuiltContext:
        """The context that was made of it, with what the bill says of the sections. Nothing of it is frozen: the next
        agent reads other sections."""
        used = built.utilization
        used.strategy = "simple" if used.strategy == "passthrough" else used.strategy
        used.messages_excluded += self.excluded
        used.warnings += self.warnings
        return replace(built, material=None, counting=None, is_worded=True)


def for_agent(
    history: History, agent: Agent, assemblers: Assemblers, settings: ContextSettings, fits: Fits
) -> ForAgent:
    """The conversation in the words of the agent's assembler; of one of type `chat`, with its instruction.

    Args:
        fits: whether these messages are within the budget. While they are not, the oldest context leaves.

    Raises:
        InvalidRequest: there is nothing to deliver.
    """
    if not agent.is_assembled:
        return ForAgent(with_instruction(history, agent), 0)
    assembler, warnings = _assembler(agent, assemblers)
    window = settings.agent_window if agent.window is None else agent.window
    delivery = deliver(history, window)

    def words(assembler: Assembler, count: int) -> AssemblerOutput:
        context = delivery.context[len(delivery.context) - count :]
        given = AssemblerInput(
            context_messages=context,
            current_message=delivery.text,
            team_task=history.team_task,
            system_instruction=agent.instruction,
            instruction_file_text=agent.instruction_file_text,
            max_bytes=settings.agent_max_bytes,
        )
        made = assembler(given)
        return AssemblerOutput(made.prompt, made.system_flag, made.dropped)

    try:
        made = words(assembler, len(delivery.context))
    except Exception as fault:  # noqa: BLE001 - an assembler of a third party costs its wording, never the answer
        log.fault("assembler_failed", fault, type=agent.agent_type, used="plain")
        assembler, warnings = plain, (FAILED,)
        made = words(assembler, len(delivery.context))
    if delivery.is_empty and not made.prompt:
        raise InvalidRequest("There is no message to deliver.", param="messages", code="missing_required_parameter")
    kept = len(delivery.context) - made.dropped
    if kept and not fits(_messages(delivery, made)):
        kept = _most(kept, lambda count: fits(_messages(delivery, words(assembler, count))))
        made = words(assembler, kept)
    instructions = (*delivery.instructions, *_system(made))
    prompt = new_message(_prompt(delivery, made), 0)
    shown = replace(history, instructions=instructions, messages=(prompt, *_new(delivery.steps)), stored=0)
    as_read = replace(shown, restored_count=0, unread=0, read_from=None, earlier=None, frame=None)
    excluded = len(history.messages) + history.unread - kept - 1 - len(delivery.steps)
    return ForAgent(as_read, max(0, excluded), warnings)


def with_instruction(history: History, agent: Agent) -> History:
    """The conversation with the agent's own instruction behind the system messages. It is not stored with it."""
    given = AssemblerInput((), "", None, agent.instruction, agent.instruction_file_text, 0)
    body = system_body(given)
    own = ({"role": "system", "content": body},) if body else ()
    return replace(history, instructions=(*history.instructions, *own))


def _assembler(agent: Agent, assemblers: Assemblers) -> tuple[Assembler, tuple[str, ...]]:
    found = assemblers.of(agent.agent_type)
    if found is not None:
        return found, ()
    log.warning("unknown_agent_type", type=agent.agent_type, used="plain")
    return plain, (UNKNOWN_TYPE,)


def _most(known: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `known` that fits; 0 if none does."""
    low, high = 0, known - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _messages(delivery: Delivery, made: AssemblerOutput) -> list[dict[str, Any]]:
    steps = (step.body for step in delivery.steps)
    return [*delivery.instructions, *_system(made), _prompt(delivery, made), *steps]


def _system(made: AssemblerOutput) -> tuple[dict[str, Any], ...]:
    return ({"role": "system", "content": made.system_flag},) if made.system_flag else ()


def _prompt(delivery: Delivery, made: AssemblerOutput) -> dict[str, Any]:
    if not delivery.parts:
        return {"role": "user", "content": made.prompt}
    text = ({"type": "text", "text": made.prompt},) if made.prompt else ()
    return {"role": "user", "content": [*text, *delivery.parts]}


def _new(steps: tuple[ConversationMessage, ...]) -> tuple[ConversationMessage, ...]:
    """The steps as messages that are not stored: they follow a prompt that is not."""
    return tuple(new_message(step.body, number) for number, step in enumerate(steps, 1))
