"""Records the messages that a request forwarded, where they differ from those that are stored: a frame (ADR 12)."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.context.planning.decision import reduced_of
from gateway.context.report import BuiltContext
from gateway.context.window.counting import PromptCounter
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.frames import Form, FrozenDecision, NewFrame, PromptFrame
from gateway.core.types.memory import MemoryMessage
from gateway.core.types.window import PackedWindow, WindowInputs

MAX_ADDITIONS = 50
"""Frames that may follow a full one. The next is written as a full one again, so that reading stays cheap."""


def new_frame(
    model: str,
    history: ConversationHistory,
    built: BuiltContext,
    material: WindowInputs,
    new: Sequence[ConversationMessage],
) -> NewFrame | None:
    """The frame of an answered request; None if the stored messages and earlier frames already say what it forwarded.
    `history`: the conversation as it was before frames were put over it; `new`: the request's messages under their ids,
    as they will be stored."""
    request = _FrameRequest(history, material, built.fitted, built.counting, new)
    added = replace(
        request.added(),
        asked=request.begins_turn if built.plan is not None else None,
        left_out_tokens=built.left_out.tokens if built.left_out else 0,
        recalls=built.recalls,
    )
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

    def added(self) -> PromptFrame:
        """What was forwarded otherwise than is stored, or, unless everything was decided anew, is frozen already."""
        forms: dict[str, Form] = {}
        shown_in_full: dict[str, tuple[str, ...]] = {}
        unsent: set[str] = set()
        forwarded = self._fitted.forwarded
        for index, sent in zip(forwarded.indexes, forwarded.messages, strict=True):
            name = self._names[index] if index >= 0 else None
            if name is None or name not in self._stored or self._is_known(name, index, sent):
                continue
            message = self._stored[name]
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
            refers=self._refers(),
        )

    def whole(self, added: PromptFrame) -> PromptFrame:
        """All that counts from now on, where everything was decided anew."""
        material, selection = self._material, self._fitted.selection
        return PromptFrame(
            first=self._first,
            left_out=self._before.left_out
            | frozenset(name for i in selection.left_out if (name := self._names[i]) is not None),
            forms=added.forms,
            shown_in_full=added.shown_in_full,
            decisions={**self._kept_decisions(), **added.decisions},
            decided=frozenset(a.block_name for a in (*material.restored, *material.attached)) | self._before.decided,
            unsent=added.unsent,
            counts=added.counts,
            asked=added.asked or self._before.asked,
            left_out_tokens=added.left_out_tokens,
            recalls=added.recalls,
            refers=added.refers,
            memory=self._memory,
        )

    def moved(self, frame: PromptFrame) -> PromptFrame:
        """The frame where turns left the window, and nothing else of it was decided anew."""
        return replace(self.within(frame), first=self._first, memory=self._memory)

    @property
    def _first(self) -> str | None:
        """The id of the message with which the window begins; None where that is the conversation's first."""
        first = self._fitted.selection.first
        return self._names[first] if (first or self._unread) and self._names else None

    @property
    def _memory(self) -> MemoryMessage | None:
        memory = self._fitted.forwarded.memory
        return memory.named(self._names) if memory is not None else None

    def _keeps_block_of(self, index: int) -> bool:
        """Whether the message keeps its block, whatever became of its files."""
        return self._fitted.selection.keeps_block and index == self._material.current

    def _kept_decisions(self) -> dict[str, tuple[FrozenDecision, ...]]:
        """Those for what stands in the block of the turn under way, where that was kept."""
        name = self.begins_turn
        if name is None or not self._fitted.selection.keeps_block:
            return {}
        return {name: self._before.decisions.get(name, ())}

    def within(self, frame: PromptFrame) -> PromptFrame:
        """Of a frame what the window still holds."""
        here = {self._names[index] for index in self._fitted.forwarded.indexes if index >= 0}
        return replace(frame.of(here), left_out=frame.left_out & self._stored.keys(), additions=0, borrowed=False)

    def _is_known(self, name: str, index: int, sent: dict[str, object]) -> bool:
        """Whether a message would be forwarded in that form again with nothing more said about it."""
        stored, shown = self._stored[name], self._material.messages[index]
        if sent is stored.body and stored.rendered is None and name not in self._before.forms:
            return True  # as most are
        if sent.get("tool_calls") != stored.body.get("tool_calls"):
            return True  # calls that nobody answered, or that are told as text: that shows from the messages themselves
        if not self._new_pass and name in self._before.forms:
            form = self._before.forms[name]
            return sent is (shown.body if form is None else shown.rendered)
        default = stored.body if stored.rendered is None else stored.rendered
        return sent is default or sent == default

    def _is_of_messages_sent(self) -> bool:
        """Whether nothing stands in the block but what the client sent as messages with this request."""
        apart = (*self._material.restored, *self._material.attached)
        shown = {*self._fitted.selection.renderings, *(each.artifact.artifact_id for each in self._material.pages)}
        return self._sent_all and not any(a.artifact_id in shown for a in apart)

    def _decisions(self) -> dict[str, tuple[FrozenDecision, ...]]:
        """What stands in messages of the window and is less than the whole, by the message that it stands in."""
        found: dict[str, list[FrozenDecision]] = {}
        for index, shown_in_full in reduced_of(self._material, self._fitted):
            name = self._names[index]
            if name is not None:
                found.setdefault(name, []).append(shown_in_full)
        return {name: tuple(each) for name, each in found.items()}

    def _refers(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """What the results refer to that this request shaped."""
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
