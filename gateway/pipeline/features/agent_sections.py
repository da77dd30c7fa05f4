"""What an agent reads in place of the messages: sections that its assembler renders from team task, context and message
(guarantee §11.2, §11.3). A section with an empty body is not emitted. Third parties add types by entry points of the
group `context_gateway.assemblers`."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gateway.context import INLINE_CHARS, BuiltContext
from gateway.context.tokens import CounterRegistry
from gateway.context.window import counting
from gateway.conversations import message_forms
from gateway.core import errors
from gateway.core.config.settings import ContextSettings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.plugins import load_plugin, plugins_of
from gateway.core.tasks import offload_if
from gateway.core.types import agents, chain, conversation, tool_steps
from gateway.core.types.chat import PromptBudget
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.pipeline.stages import PreparedRequest, ReadAs, RequestFeature

ASSEMBLERS_GROUP = "context_gateway.assemblers"


@record
class SectionHeaders:
    """The line above each section; empty where a section has none."""

    system: str = ""
    team_task: str = ""
    context: str = ""
    message: str = ""


BRACKETED = SectionHeaders("[SYSTEM]", "[TEAM_TASK]", "[CONTEXT]", "[MESSAGE]")
LABELLED_SECTIONS = SectionHeaders("Instructions:", "Team task:", "Conversation so far:", "User message:")
UNLABELLED_SECTIONS = SectionHeaders()


def claude_code(given: agents.AssemblerInput) -> agents.AssemblerOutput:
    """Renders sections in brackets; the instruction is separate, as the system message."""
    system = agents.system_body(given)
    made = _assembled(given, "", BRACKETED, len(system.encode()))
    return agents.AssemblerOutput(made.prompt, system or None, made.dropped)


def openai_codex(given: agents.AssemblerInput) -> agents.AssemblerOutput:
    """Renders sections in brackets, the instruction as the first of them."""
    return _assembled(given, agents.system_body(given), BRACKETED)


def google_gemini(given: agents.AssemblerInput) -> agents.AssemblerOutput:
    """Renders sections with headers in words, without brackets."""
    return _assembled(given, agents.system_body(given), LABELLED_SECTIONS)


def plain(given: agents.AssemblerInput) -> agents.AssemblerOutput:
    """Renders sections without headers: for agents of an unknown type."""
    return _assembled(given, agents.system_body(given), UNLABELLED_SECTIONS)


BUILT_IN: dict[str, agents.Assembler] = {
    "claude-code": claude_code,
    "openai-codex": openai_codex,
    "google-gemini": google_gemini,
    agents.PLAIN: plain,
}


def _assembled(
    given: agents.AssemblerInput, system: str, headers: SectionHeaders, apart: int = 0
) -> agents.AssemblerOutput:
    """Renders the sections in their order, with as much context as fits. `apart`: bytes of what is sent beside them."""
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
    return agents.AssemblerOutput(prompt(kept) if dropped else whole, dropped=dropped)


def too_old(lines: Sequence[str], size: int, max_bytes: int) -> int:
    """Counts the lines that have to leave, the oldest first: the one trimmer of all assemblers.
    `lines`: those that may leave; `size`: bytes of all sections with these lines."""
    count = 0
    while count < len(lines) and size > max_bytes:
        size -= len(lines[count].encode()) + 1
        count += 1
    return count


class AssemblerRegistry:
    """The assemblers by type. Those of third parties are loaded when a request first names a type that is not built in:
    searching for entry points takes longer than a request."""

    def __init__(self) -> None:
        self._added: dict[str, agents.Assembler | None] | None = None

    def of(self, agent_type: str) -> agents.Assembler | None:
        """Returns the assembler of that type; None if it is unknown."""
        return BUILT_IN.get(agent_type) or self._of_third_parties().get(agent_type)

    def _of_third_parties(self) -> dict[str, agents.Assembler | None]:
        if self._added is None:
            self._added = {}
            for entry in plugins_of(ASSEMBLERS_GROUP):
                try:
                    self._added[entry.name] = load_plugin(entry)
                except Exception:  # noqa: BLE001 - code of others may fail in any way, and costs its type alone
                    self._added[entry.name] = None
        return self._added


# What is delivered to an agent: the current message, and the window of what was said before it (guarantee §11.3,
# §11.4).

SECTION = re.compile(r"^[ \t]*\[(?:SYSTEM|TEAM_TASK|CONTEXT|MESSAGE)\][ \t]*$\n?", re.IGNORECASE | re.MULTILINE)
"""Lines that an agent could mistake for the beginning of a section."""


@record
class AgentDelivery:
    """What is delivered to an agent of a conversation.

    `instructions` are the client's system messages, wherever they are. `context` holds messages before the current one,
    the oldest first; `parts` holds the current message's parts beside text; `steps` are the tool steps after it, and a
    prefill.
    """

    instructions: tuple[dict[str, Any], ...]
    context: tuple[agents.PromptContextMessage, ...]
    text: str
    parts: tuple[dict[str, Any], ...]
    steps: tuple[ConversationMessage, ...]
    is_empty: bool

    def documents(self, min_chars: int) -> list[dict[str, Any]]:
        """Returns the parts of the current message that may be reduced as documents: its files, and its text if that is
        longer than `min_chars`."""
        text = [{"type": "text", "text": self.text}] if len(self.text) > min_chars else []
        return [*text, *(part for part in self.parts if part.get("type") == "file")]


def deliver(history: ConversationHistory, window: int, *, prefills: bool = False) -> AgentDelivery:
    """Selects the latest message, whoever said it, up to `window` messages before it that have text, and pinned ones
    before these.
    `prefills`: an assistant message at the end of the request is the beginning of the answer."""
    said = [message for message in history.messages if message.role not in conversation.INSTRUCTION_ROLES]
    inside = tuple(m.body for m in (*history.older_kept, *history.messages) if m.role in conversation.INSTRUCTION_ROLES)
    at = _current(said, prefilled=prefills and bool(history.new_messages))
    current = said[at] if at is not None else None
    older = [
        message
        for message in history.older_kept
        if message.pinned and message.role not in conversation.INSTRUCTION_ROLES
    ]
    before = [*older, *said[:at]] if at is not None else []
    context = _window(before, window)
    text = message_forms.without_markers(tool_steps.text_of(current.content)) if current is not None else ""
    if current is not None and current.role == "assistant":  # what people say stays as it is (§4 I4)
        text = SECTION.sub("", text)
        context = without_repeat(context, current.message_id, speaker(current), text)
    return AgentDelivery(
        instructions=(*history.instructions, *inside),
        context=context,
        text=text,
        parts=message_forms.parts_beside_text(current),
        steps=tuple(said[at + 1 :]) if at is not None else (),
        is_empty=current is None,
    )


def speaker(message: ConversationMessage) -> str:
    """Returns the name of the message's speaker, else the name for its role."""
    return message.said_by or (agents.ASSISTANT if message.role == "assistant" else agents.PERSON)


def without_repeat(
    context: tuple[agents.PromptContextMessage, ...], message_id: str | None, name: str, text: str
) -> tuple[agents.PromptContextMessage, ...]:
    """Removes the current message, which an agent said, from the end of its context: the same id, else the same speaker
    and text. What people say is never taken for a repeat.
    `message_id, name, text`: of the current message."""
    if not context:
        return context
    last = context[-1]
    is_same = last.message_id is not None and last.message_id == message_id
    return context[:-1] if is_same or (last.speaker == name and last.content == text) else context


def _current(said: Sequence[ConversationMessage], *, prefilled: bool) -> int | None:
    """Returns the index of the latest message that is neither a tool step nor a prefill of the request."""
    at = len(said) - 1
    if prefilled and at > 0 and said[at].role == "assistant" and not chain.is_step(said[at].body):
        at -= 1  # the request brings the beginning of the answer
    while at >= 0 and (said[at].role in tool_steps.RESULT_ROLES or chain.is_step(said[at].body)):
        at -= 1
    return at if at >= 0 else None


def _window(before: Iterable[ConversationMessage], window: int) -> tuple[agents.PromptContextMessage, ...]:
    """Returns the latest messages that have text; tool results only if they are pinned."""
    found: list[agents.PromptContextMessage] = []
    count = 0
    for message in reversed(list(before)):
        is_result = message.role in tool_steps.RESULT_ROLES
        if not message.pinned and (count >= window or is_result):
            continue
        text = SECTION.sub("", message_forms.without_markers(tool_steps.text_of(message.content)))
        if text.strip():
            name = message.role if is_result else speaker(message)
            found.append(agents.PromptContextMessage(name, text, message.message_id, message.pinned))
            count += 1
    return tuple(reversed(found))


log = logs.get_logger("gateway.pipeline.features.agents")
FILE_LABEL = 150
"""Tokens reserved for the label of a file that is read as text, which may be longer than the file."""
MIN_KEPT_BYTES = 64
"""Least that remains of a cut message: with less, an agent could not see what it is about."""
BYTES_LEFT_OUT = "\n\n[{} bytes of this message left out]\n\n"
UNKNOWN_TYPE, FAILED, CUT = "agent_type_unknown", "agent_assembler_failed", "agent_message_cut"


@record
class SectionRoom:
    """How many tokens the sections may take.

    Attributes:
        count: counts the tokens of one message.
        around: tokens of tools and of the reply's beginning.
        budget: of the whole prompt.
    """

    count: Callable[[dict[str, Any]], int]
    around: int
    budget: PromptBudget

    def total(self, messages: list[dict[str, Any]]) -> int:
        """Counts the tokens of a prompt of these messages."""
        return self.around + sum(map(self.count, messages))

    def fits(self, messages: list[dict[str, Any]], spare: int) -> bool:
        """Returns whether these messages leave `spare` tokens of the budget, tools and schema included."""
        return self.budget.tokens is None or self.total(messages) + spare <= self.budget.tokens


@record
class ForAgent:
    """A conversation as an agent reads it. `excluded`: how many messages are in none of its sections."""

    history: ConversationHistory
    excluded: int
    warnings: tuple[str, ...] = ()

    def reported(self, built: BuiltContext) -> BuiltContext:
        """Adds to the context's bill what became of the sections. Nothing of the context is frozen: the next agent
        reads other sections."""
        used = built.utilization
        used.strategy = "simple" if used.strategy == "passthrough" else used.strategy
        used.messages_excluded += self.excluded
        used.warnings += self.warnings
        return replace(built, material=None, counting=None, is_worded=True)


class AgentSections:
    """Renders conversations for agents that read anything but the messages as they are."""

    def __init__(self, counters: CounterRegistry, settings: ContextSettings) -> None:
        self._counters = counters
        self._settings = settings
        self._assemblers = AssemblerRegistry()

    def build(self) -> RequestFeature:
        return RequestFeature(needs="is_worded", on_inputs=self._worded)

    async def _worded(
        self, prepared: PreparedRequest, history: ConversationHistory, budget: PromptBudget
    ) -> ReadAs | None:
        request, agent = prepared.request, prepared.request.agent
        if agent is None:
            return None
        counter = self._counters.counter(prepared.facts)
        around = counting.REPLY_TOKENS + counter.tools(request.forward) if agent.is_assembled else 0
        room = SectionRoom(counter.message, around, budget)
        made = await offload_if(
            request.size >= INLINE_CHARS, for_agent, history, agent, self._assemblers, self._settings, room
        )
        return ReadAs(made.history, made.reported if agent.is_assembled else None)


def for_agent(
    history: ConversationHistory,
    agent: agents.RequestAgent,
    assemblers: AssemblerRegistry,
    settings: ContextSettings,
    room: SectionRoom,
) -> ForAgent:
    """Renders the conversation by the agent's assembler; for type `chat`, adds its instruction. While the sections do
    not fit, the oldest unpinned context leaves. A current message that alone exceeds the bytes is cut.
    Raises InvalidRequest: there is nothing to deliver; ContextLengthExceeded: pinned messages do not fit, or the
    instruction and the team task exceed the bytes."""
    if not agent.is_assembled:
        return ForAgent(with_instruction(history, agent), 0)
    window = settings.agent_window if agent.window is None else agent.window
    delivery = deliver(history, window, prefills=agent.prefill)
    words = _SectionWriter(agent, assemblers, delivery, history.team_task, settings.agent_max_bytes)
    made = words.with_context(len(words.free))
    if delivery.is_empty and not made.prompt:
        raise errors.InvalidRequest(
            "There is no message to deliver.", param="messages", code="missing_required_parameter"
        )
    kept = len(words.free) - made.dropped
    spare = FILE_LABEL * sum(part.get("type") == "file" for part in delivery.parts)

    def fits(made: agents.AssemblerOutput) -> bool:
        return words.excess(made) <= 0 and room.fits(_messages(delivery, made), spare)

    if kept and not fits(made):
        kept = _most(kept, lambda count: fits(words.with_context(count)))
        made = words.with_context(kept)
    if words.excess(made) > 0:
        made = words.cut(made)
        delivery = words.delivery
    pinned = len(delivery.context) - len(words.free)
    if pinned or words.excess(made) > 0:
        words.check_kept(made, room, settings.document_min_chars)
    instructions = (*delivery.instructions, *_system(made))
    prompt = conversation.new_message(_prompt(delivery, made), 0)
    shown = replace(history, instructions=instructions, messages=(prompt, *_new(delivery.steps)), stored=0)
    as_read = replace(shown, restored_count=0, unread=0, read_from=None, earlier=None, frame=None)
    as_read = replace(as_read, segments=(), older_kept=(), spoken=_spoken(delivery, made))
    excluded = len(history.messages) + history.unread - kept - pinned - 1 - len(delivery.steps)
    return ForAgent(as_read, max(0, excluded), words.warnings)


def with_instruction(history: ConversationHistory, agent: agents.RequestAgent) -> ConversationHistory:
    """Adds the agent's own instruction after the system messages. The conversation is stored without it."""
    given = agents.AssemblerInput((), "", None, agent.instruction, agent.instruction_file_text, 0)
    body = agents.system_body(given)
    own = ({"role": "system", "content": body},) if body else ()
    return replace(history, instructions=(*history.instructions, *own))


class _SectionWriter:
    """An agent's assembler at work. If a third party's assembler fails, the plain one replaces it."""

    def __init__(
        self,
        agent: agents.RequestAgent,
        assemblers: AssemblerRegistry,
        delivery: AgentDelivery,
        team_task: str | None,
        max_bytes: int,
    ) -> None:
        self.delivery = delivery
        self.free = [number for number, message in enumerate(delivery.context) if not message.pinned]
        self.warnings: tuple[str, ...] = ()
        self._agent, self._team_task, self._max_bytes = agent, team_task, max_bytes
        self._assembler = assemblers.of(agent.agent_type)
        if self._assembler is None:
            log.warning("unknown_agent_type", type=agent.agent_type, used="plain")
            self._assembler, self.warnings = plain, (UNKNOWN_TYPE,)

    def excess(self, made: agents.AssemblerOutput) -> int:
        """Returns by how many bytes the sections exceed their limit."""
        return len((made.system_flag or "").encode()) + len(made.prompt.encode()) - self._max_bytes

    def cut(self, made: agents.AssemblerOutput) -> agents.AssemblerOutput:
        """Renders the sections without unpinned context, and with as much of the current message as fits."""
        text = shortened(self.delivery.text, len(self.delivery.text.encode()) - self.excess(made))
        if text is None:
            return made
        self.delivery = replace(self.delivery, text=text)
        self.warnings = (*self.warnings, CUT)
        return self.with_context(0)

    def with_context(self, count: int) -> agents.AssemblerOutput:
        """Renders the sections with the latest `count` unpinned messages of the context, and those pinned."""
        gone = frozenset(self.free[: len(self.free) - count])
        context = tuple(message for number, message in enumerate(self.delivery.context) if number not in gone)
        given = agents.AssemblerInput(
            context_messages=context,
            current_message=self.delivery.text,
            team_task=self._team_task,
            system_instruction=self._agent.instruction,
            instruction_file_text=self._agent.instruction_file_text,
            max_bytes=self._max_bytes,
        )
        try:
            return _checked((self._assembler or plain)(given))
        except Exception as fault:  # noqa: BLE001 - code of others may fail in any way
            log.fault("assembler_failed", fault, type=self._agent.agent_type, used="plain")
            self._assembler, self.warnings = plain, (*self.warnings, FAILED)
            return plain(given)

    def check_kept(self, made: agents.AssemblerOutput, room: SectionRoom, document_min_chars: int) -> None:
        """Checks that the sections fit: only the current message may be cut; tool steps after it are reduced later.
        Raises ContextLengthExceeded: the sections do not fit although only pinned messages are left of the context."""
        messages = _messages(replace(self.delivery, steps=()), made)
        said = self.delivery.documents(document_min_chars)
        total = room.total(messages)
        least = total - (room.count({"role": "user", "content": said}) if said else 0)
        in_budget, excess = room.budget.tokens is None or least <= room.budget.tokens, self.excess(made)
        if in_budget and excess <= 0:
            return
        pinned = "\n".join(f"{each.speaker}: {each.content}" for each in self.delivery.context if each.pinned)
        system = [*self.delivery.instructions, *_system(made)]
        taken = (sum(map(room.count, system)), room.count({"role": "user", "content": pinned}) if pinned else 0)
        sizes = f"System messages take {taken[0]} tokens, pinned messages {taken[1]}, all else {total - sum(taken)}"
        limits = f"their budget is {room.budget.tokens} tokens and {self._max_bytes} bytes"
        overflow = room.budget.overflow(total)
        if in_budget:  # the bytes are exceeded: overflow in tokens of these words, as clients know no other limit
            held = total * self._max_bytes // (self._max_bytes + excess)
            overflow = f"{errors.overflow_text(held, total)} context.agent_max_bytes sets this limit."
        raise errors.ContextLengthExceeded(f"{overflow} {sizes}; {limits}.", param="messages")


def shortened(text: str, room: int) -> str | None:
    """Shortens a text to its beginning and end, with a label between them that counts what is left out: `room` bytes at
    most. None if that is too little to be of use."""
    raw = text.encode()
    half = (room - len(BYTES_LEFT_OUT.format(len(raw)))) // 2
    if half * 2 < MIN_KEPT_BYTES:
        return None
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    return head + BYTES_LEFT_OUT.format(len(raw) - len(head.encode()) - len(tail.encode())) + tail


def _checked(made: agents.AssemblerOutput) -> agents.AssemblerOutput:
    """Raises TypeError: it is not an assembler's output."""
    texts = isinstance(made.prompt, str) and isinstance(made.system_flag, str | None)
    if not (isinstance(made, agents.AssemblerOutput) and texts):
        raise TypeError("an assembler gives an AssemblerOutput of texts")
    return made


def _most(known: int, fits: Callable[[int], bool]) -> int:
    """Returns the largest number below `known` that fits; 0 if none does."""
    low, high = 0, known - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _messages(delivery: AgentDelivery, made: agents.AssemblerOutput) -> list[dict[str, Any]]:
    steps = (step.body for step in delivery.steps)
    return [*delivery.instructions, *_system(made), _prompt(delivery, made), *steps]


def _system(made: agents.AssemblerOutput) -> tuple[dict[str, Any], ...]:
    return ({"role": "system", "content": made.system_flag},) if made.system_flag else ()


def _prompt(delivery: AgentDelivery, made: agents.AssemblerOutput) -> dict[str, Any]:
    if not delivery.parts:
        return {"role": "user", "content": made.prompt}
    text = ({"type": "text", "text": made.prompt},) if made.prompt else ()
    return {"role": "user", "content": [*text, *delivery.parts]}


def _spoken(delivery: AgentDelivery, made: agents.AssemblerOutput) -> tuple[int, int]:
    """Returns where the prompt last contains the current message; an empty span if an assembler rewords it. Only that
    span holds documents: pinned context stays, and the message's first paragraph is not the prompt's."""
    at = made.prompt.rfind(delivery.text)
    return (at, at + len(delivery.text)) if at >= 0 else (0, 0)


def _new(steps: tuple[ConversationMessage, ...]) -> tuple[ConversationMessage, ...]:
    """Returns the steps as messages that are not stored, as the prompt they follow is not."""
    found = tuple(conversation.new_message(step.body, number) for number, step in enumerate(steps, 1))
    for message, step in zip(found, steps, strict=True):
        message.pinned = step.pinned
    return found
