"""Makes frames: what a request of a conversation forwarded, where that differs from what is stored (ADR 12). Those of
stored conversations are stored with their turns, all others by `unstored_frames.py`."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.context import BuiltContext, artifact_decisions
from gateway.context.window import PromptCounter
from gateway.core.types import memory
from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    Form,
    FrozenDecision,
    NewFrame,
    PromptFrame,
)
from gateway.core.types.window import PackedWindow, WindowInputs

MAX_ADDITIONS = 50
"""Frames that may follow a full one. The next one is full again, so that reading stays cheap."""


def new_frame(
    model: str,
    history: ConversationHistory,
    built: BuiltContext,
    material: WindowInputs,
    new: Sequence[ConversationMessage],
) -> NewFrame | None:
    """Builds the frame of an answered request; None if stored messages and earlier frames imply what it forwarded.
    `history`: the conversation before frames were applied; `new`: the request's messages under their ids, as they will
    be stored."""
    request = _FrameRequest(history, material, built.fitted, built.counting, new)
    added = request.added(built)
    before = history.frame
    if built.fitted.moved and before is not None:
        return NewFrame(model, full=True, frame=request.moved(before.followed_by(added)))
    if built.fitted.new_pass or built.fitted.moved or (before is None and history.unread):
        return NewFrame(model, full=True, frame=request.whole(added))
    is_borrowed = before is not None and before.borrowed
    if not (added.forms or added.decisions or added.asked or is_borrowed):
        return None
    if before is not None and (is_borrowed or before.additions >= MAX_ADDITIONS):
        return NewFrame(model, full=True, frame=request.within(before.followed_by(added)))
    return NewFrame(model, full=False, frame=added)


class _FrameRequest:
    def __init__(
        self,
        history: ConversationHistory,
        material: WindowInputs,
        fitted: PackedWindow,
        counting: PromptCounter | None,
        new: Sequence[ConversationMessage],
    ) -> None:
        self._before = history.frame or PromptFrame()
        self._new_pass, self._unread = fitted.new_pass, bool(history.unread)
        self._sent_all = history.unproven or history.created
        self._material, self._fitted, self._counting = material, fitted, counting
        self._stored = {m.message_id: m for m in (*history.messages[: history.stored], *new) if m.message_id}
        known = len(material.messages) - len(new)
        old = [message.message_id for message in material.messages[:known]]
        self._names = [*old, *(message.message_id for message in new)]

    @property
    def begins_turn(self) -> str | None:
        """The id of the message that begins the current turn."""
        return self._names[self._material.current] if self._names else None

    def added(self, built: BuiltContext) -> PromptFrame:
        """Returns what was forwarded in a form that is neither stored nor (unless all was decided again) frozen."""
        forms: dict[str, Form] = {}
        stored, formed = self._stored, self._before.forms
        shown_in_full: dict[str, tuple[str, ...]] = {}
        unsent: set[str] = set()
        forwarded = self._fitted.forwarded
        for index, sent in zip(forwarded.indexes, forwarded.messages, strict=True):
            name = self._names[index] if index >= 0 else None
            if name is None or (message := stored.get(name)) is None:
                continue
            is_usual = sent is message.body and message.rendered is None and name not in formed  # first: nearly all are
            if is_usual or self._is_known(name, index, sent):
                continue
            forms[name] = None if sent == message.body else sent
            if sent is forwarded.rendered:
                shown_in_full[name] = forwarded.shown_in_full
                unsent |= set() if self._is_of_messages_sent() else {name}
            elif sent is self._material.messages[index].rendered or self._keeps_block_of(index):
                shown_in_full[name] = self._material.messages[index].shown_in_full
                unsent |= {name} & self._before.unsent
        return PromptFrame(
            forms=forms,
            shown_in_full=shown_in_full,
            decisions=self._decisions(),
            unsent=frozenset(unsent),
            counts={name: self._count(form) for name, form in forms.items()},
            asked=self.begins_turn if built.plan is not None else None,
            left_out_tokens=built.left_out.tokens if built.left_out else 0,
            recalls=built.recalls,
            refers=self._refers(),
        )

    def whole(self, added: PromptFrame) -> PromptFrame:
        """Returns the whole frame in force from now on, after everything was decided again."""
        material, selection = self._material, self._fitted.selection
        return replace(
            added,
            first=self._first,
            left_out=self._before.left_out
            | frozenset(name for i in selection.left_out if (name := self._names[i]) is not None),
            decisions={**self._kept_decisions(), **added.decisions},
            decided=frozenset(a.block_name for a in (*material.restored, *material.attached)) | self._before.decided,
            asked=added.asked or self._before.asked,
            memory=self._memory,
        )

    def moved(self, frame: PromptFrame) -> PromptFrame:
        """Returns the frame after turns left the window, with all its other decisions unchanged."""
        return replace(self.within(frame), first=self._first, memory=self._memory)

    @property
    def _first(self) -> str | None:
        """The id of the message with which the window begins; None where that is the conversation's first."""
        first = self._fitted.selection.first
        return self._names[first] if (first or self._unread) and self._names else None

    @property
    def _memory(self) -> memory.MemoryMessage | None:
        memory = self._fitted.forwarded.memory
        return memory.named(self._names) if memory is not None else None

    def _keeps_block_of(self, index: int) -> bool:
        """Returns whether the message keeps its block, whatever became of its files."""
        return self._fitted.selection.keeps_block and index == self._material.current

    def _kept_decisions(self) -> dict[str, tuple[FrozenDecision, ...]]:
        """Returns the decisions for the block of the turn under way, if that block was kept."""
        name = self.begins_turn
        if name is None or not self._fitted.selection.keeps_block:
            return {}
        return {name: self._before.decisions.get(name, ())}

    def within(self, frame: PromptFrame) -> PromptFrame:
        """Returns the part of a frame that the window still holds."""
        here = {self._names[index] for index in self._fitted.forwarded.indexes if index >= 0}
        return replace(frame.of(here), left_out=frame.left_out & self._stored.keys(), additions=0, borrowed=False)

    def _is_known(self, name: str, index: int, sent: dict[str, object]) -> bool:
        """Returns whether a message would be forwarded in that form again without an entry in the frame."""
        stored, shown = self._stored[name], self._material.messages[index]
        if index in self._fitted.selection.short_inputs:
            return False
        if sent.get("tool_calls") != stored.body.get("tool_calls") and sent is not shown.rendered:
            return True  # unanswered calls, or calls rendered as text: the messages themselves imply that
        if not self._new_pass and name in self._before.forms:
            form = self._before.forms[name]
            return sent is (shown.body if form is None else shown.rendered)
        default = stored.body if stored.rendered is None else stored.rendered
        return sent is default or sent == default

    def _is_of_messages_sent(self) -> bool:
        """Returns whether the block holds only what the client sent as messages with this request."""
        apart = (*self._material.restored, *self._material.attached)
        shown = {*self._fitted.selection.renderings, *(each.artifact.artifact_id for each in self._material.pages)}
        return self._sent_all and not any(a.artifact_id in shown for a in apart)

    def _decisions(self) -> dict[str, tuple[FrozenDecision, ...]]:
        """Returns the reduced items in messages of the window, by the message that contains them."""
        found: dict[str, list[FrozenDecision]] = {}
        for index, reduced in artifact_decisions.reduced_of(self._material, self._fitted):
            name = self._names[index]
            if name is not None:
                found.setdefault(name, []).append(reduced)
        return {name: tuple(each) for name, each in found.items()}

    def _refers(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Returns what the results that this request shaped refer to."""
        refers = self._fitted.selection.refers
        if not refers:
            return {}
        contents = {each.place.message: each.content_id for each in self._material.placed}
        named = {index: name for index, name in enumerate(self._names) if name is not None}
        return {
            named[index]: tuple((named[target], contents[target]) for target in sorted(targets))
            for index, targets in refers.items()
            if index in named and named.keys() >= targets
        }

    def _count(self, form: Form) -> dict[str, int]:
        return self._counting.counted(form) if form is not None and self._counting is not None else {}
