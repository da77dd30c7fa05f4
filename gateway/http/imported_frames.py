"""Checks what models were sent of an exported conversation: it is forwarded again as it stands there."""

from gateway.http.fields import Fields
from gateway.http.messages import check_message
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.frames import Form, Frame, NewFrame, frame_of
from gateway.models.transfer import ImportedFrame, ImportedMessage

MOST_FRAMES = 100_000
PAIRED = ("role", "tool_call_id", "tool_calls", "function_call")


def frames_of(document: Fields, messages: tuple[ImportedMessage, ...]) -> tuple[ImportedFrame, ...]:
    """The frames of a document; versions before there were any wrote none."""
    if document("frames") is None:
        return ()
    numbers = {each.name: index for index, each in enumerate(messages)}
    return tuple(_frame(fields, numbers, messages) for fields in document.objects("frames", MOST_FRAMES))


def _frame(fields: Fields, numbers: dict[str, int], messages: tuple[ImportedMessage, ...]) -> ImportedFrame:
    anchor = numbers.get(fields.text("message", 64))
    if anchor is None:
        raise fields.invalid("message", "must be the id of one of the messages")
    frame = _read(fields)
    for name, form in frame.forms.items():
        if name not in numbers:
            raise fields.invalid(f"frame.forms.{name}", "must be of one of the messages")
        _check_form(fields, name, form, messages[numbers[name]])
    new = NewFrame(fields.text("model"), fields.maybe_flag("full") is True, frame)
    return ImportedFrame(new, anchor, fields.time("created_at"))


def _read(fields: Fields) -> Frame:
    value = Fields(fields("frame"), fields.where("frame"))
    for name in ("left", "decided", "foreign"):
        if not all(isinstance(each, str) for each in _members(value, name)):
            raise value.invalid(name, "must be a list of strings")
    for name in ("forms", "standing", "decisions", "counts"):
        Fields(value(name) if value(name) is not None else {}, value.where(name))
    value.maybe_text("first", 64)
    try:
        frame = frame_of(fields("frame"))
        names = [name for found in frame.standing.values() for name in found]
        names += [each.artifact_id for found in frame.decisions.values() for each in found]
        _ = [ProcessingStrategy(each.strategy) for found in frame.decisions.values() for each in found]
        chars = [each.shown_chars for found in frame.decisions.values() for each in found]
        chars += [count for counts in frame.counts.values() for count in counts.values()]
    except (AttributeError, TypeError, ValueError):
        raise fields.invalid("frame", "cannot be read") from None
    if not all(isinstance(each, str) for each in names):
        raise fields.invalid("frame", "must name artifacts by strings")
    if not all(type(each) is int and each >= 0 for each in chars):
        raise fields.invalid("frame", "must count in whole numbers from 0 on")
    return frame


def _members(value: Fields, name: str) -> list[object]:
    return value.members(name) if value(name) is not None else []


def _check_form(fields: Fields, name: str, form: Form, message: ImportedMessage) -> None:
    """It takes the place of that message, so it has to be paired as that is."""
    where = f"frame.forms.{name}"
    if form is None:
        return
    check_message(form, fields.where(where))
    body = message.message.body
    if any(form.get(key) != body.get(key) for key in PAIRED):
        raise fields.invalid(where, f"must have the same {', '.join(PAIRED)} as the message")
