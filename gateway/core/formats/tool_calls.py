"""Tool calls as upstreams send them, made into what OpenAI's protocol says (guarantee §1.9): distinct ids, whole
names, arguments in a string."""

from collections.abc import Iterable
from typing import Any

from gateway.core import jsons
from gateway.core.ids import new_id

Json = dict[str, Any]
CALL = "call_"
"""How the ids begin that calls get here."""
BODIES = {"function": "arguments", "custom": "input"}
"""The objects that a call is told in, and what in them is the text that a model writes."""


class CallIds:
    """The ids of one answer's calls."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def distinct(self, said: Any) -> str:
        """The id that a call has here: its own, unless it has none or shares it with a call before it."""
        found = id_of(said)
        if not found or found in self._taken:
            found = new_id(CALL)
        self._taken.add(found)
        return found


def id_of(said: Any) -> str:
    """An id as a string; empty where there is none."""
    is_number = isinstance(said, int) and not isinstance(said, bool)
    return said if isinstance(said, str) else str(said) if is_number else ""


def written(value: Any) -> str:
    """Arguments as the string that they should be: some servers send them as JSON."""
    return value if isinstance(value, str) else jsons.dumps_text(value)


def whole_calls(calls: Iterable[Json], ids: CallIds) -> list[Json]:
    """The calls of a whole message; one in which nothing is odd is as it came."""
    return [_whole_call(call, ids) for call in calls]


def _whole_call(call: Json, ids: CallIds) -> Json:
    found = in_function(call)
    call_id = ids.distinct(found.get("id"))
    if call_id != found.get("id"):
        found = {**found, "id": call_id}
    for kind, field in BODIES.items():
        said = found.get(kind)
        if not isinstance(said, dict):
            continue
        mended = {name: said[name] for name in ("name",) if isinstance(said.get(name), str)} or {"name": ""}
        mended[field] = "{}" if said.get(field) is None else written(said[field])
        if any(said.get(name) != value for name, value in mended.items()):
            found = {**found, kind: {**said, **mended}}
    return found if found.get("type") else {**found, "type": "custom" if "custom" in found else "function"}


def in_function(call: Json) -> Json:
    """A call whose name and arguments stand in its function, as some servers have them beside it."""
    if isinstance(call.get("function"), dict) or "custom" in call or call.get("type") not in (None, "", "function"):
        return call
    moved = {name: call[name] for name in ("name", "arguments") if name in call}
    return {**{name: value for name, value in call.items() if name not in moved}, "function": moved}


class CallPieces:
    """The calls of one streamed message, put in order as their pieces come.

    Calls are told apart by their index before their id; where an upstream sends no index, or the same for all, a new id
    begins a call, and so does a name behind arguments that are complete. A call is passed on once its name is known: a
    name may come late, or in pieces. Id, type and name are told once, as clients put pieces together.
    """

    def __init__(self, tools: frozenset[str]) -> None:
        """`tools`: the names of those that the request has; empty if it has none."""
        self._tools = tools
        self._ids = CallIds()
        self._calls: list[_PartialCall] = []

    def mended(self, pieces: list[Json]) -> list[Json]:
        """The pieces to pass on now for those that came together."""
        found: list[Json] = []
        for position, raw in enumerate(pieces):
            if raw.get("type") not in (None, "", *BODIES):  # of a kind that nobody knows
                found.append(raw)
                continue
            piece = in_function(raw) if "name" in raw or "arguments" in raw else raw
            kind = next((kind for kind in BODIES if isinstance(piece.get(kind), dict)), "function")
            said = piece.get(kind)
            said = said if isinstance(said, dict) else {}
            name = said.get("name")
            came = _CallPiece(piece, kind, said, name if isinstance(name, str) else "", len(pieces) > 1, position)
            call = self._call(came)
            if call is None:
                continue
            if call.is_new:
                for before in self._calls[:-1]:
                    found += before.released(self._ids)
                call.is_new = False
            found += self._passed(call, came)
        return found

    def rest(self) -> list[Json]:
        """What is still held at the end of the message, and empty arguments of calls that came without any."""
        found: list[Json] = []
        for call in self._calls:
            found += call.released(self._ids, anyhow=True)
            if not call.has_text and call.kind == "function":
                call.has_text = True
                found.append({"index": call.index, call.kind: {BODIES[call.kind]: "{}"}})
        return found

    def _call(self, came: "_CallPiece") -> "_PartialCall | None":
        """The call that a piece belongs to; None if it says again what was said."""
        place = came.place
        known = self._known(place, came)
        if known is None:
            return self._begun(place, came)
        if not self._begins_anew(known, came):
            return known
        again = (known.said_id, known.name, known.text) == (came.call_id, came.name, came.text)
        return None if again and came.call_id else self._begun(place, came)

    def _begins_anew(self, known: "_PartialCall", came: "_CallPiece") -> bool:
        """Whether a piece that comes where a call stands is the first of another."""
        if not came.name or not known.name:
            return False
        other = came.name != known.name
        if known.is_whole:
            return other or bool(came.text)
        return other and {known.name, came.name} <= self._tools and not came.name.startswith(known.name)

    def _known(self, place: int | None, came: "_CallPiece") -> "_PartialCall | None":
        by_id = [call for call in self._calls if came.call_id and call.said_id == came.call_id]
        here = [call for call in self._calls if call.place == place]
        if place is None:
            here = self._calls[-1:]
        if not here:
            return by_id[-1] if by_id and not came.name and came.text else None
        if not came.call_id or came.call_id == here[-1].said_id:
            return here[-1]
        if place is None and by_id:
            return by_id[-1]
        same = [call for call in here if call in by_id]
        if same:
            return same[-1]
        return here[-1] if not here[-1].said_id and not (here[-1].is_whole and came.name) else None

    def _begun(self, place: int | None, came: "_CallPiece") -> "_PartialCall":
        used = {call.index for call in self._calls}
        index = place if place is not None and place >= 0 and place not in used else max(used, default=-1) + 1
        call = _PartialCall(place, index, came.kind)
        self._calls.append(call)
        return call

    def _passed(self, call: "_PartialCall", came: "_CallPiece") -> list[Json]:
        call.said_id = call.said_id or came.call_id
        name = self._name(call.name, came.name)
        added = name[len(call.name) :] if name.startswith(call.name) else ""
        call.name = name
        if came.text is not None:
            call.pieces.append(came.text)
            call.has_text = True
        if not call.is_told:
            call.held = {**call.held, **{k: v for k, v in came.whole.items() if v or k not in call.held}}
            call.kind, call.body = came.kind, {**call.body, **came.body}
            known = self._is_whole_name(name) and bool(call.said_id)
            return call.released(self._ids) if known or (name and call.text) else []
        body = {k: v for k, v in came.body.items() if k != "name" or not v}
        if added:
            body["name"] = added
        if came.text is not None or BODIES[call.kind] in body:
            body[BODIES[call.kind]] = came.text or ""
        piece = {k: v for k, v in came.whole.items() if k != "id" or not v}
        if call.kind in piece or body:
            piece[call.kind] = body
        if not body and set(piece) <= {"index", "type", call.kind}:
            return []
        return [{**piece, "index": call.index}]

    def _name(self, known: str, came: str) -> str:
        """A name with one more piece of it, which may be all of it, once more or so far."""
        if known + came in self._tools:
            return known + came
        if came.startswith(known):
            return came
        return known if known.endswith(came) or known in self._tools else known + came

    def _is_whole_name(self, name: str) -> bool:
        if not self._tools or not name:
            return bool(name)
        return name in self._tools and not any(tool != name and tool.startswith(name) for tool in self._tools)


class _CallPiece:
    """What came of a call at once."""

    __slots__ = ("body", "call_id", "kind", "name", "place", "text", "whole")

    def __init__(self, whole: Json, kind: str, body: Json, name: str, several: bool, position: int) -> None:
        index = whole.get("index")
        self.place: int | None = index if type(index) is int else -1 - position if several else None
        self.whole = whole
        self.kind = kind
        self.body = body
        self.name = name
        self.call_id = id_of(whole.get("id"))
        said = body.get(BODIES[kind])
        self.text = None if said is None else written(said)


class _PartialCall:
    """One call. `place` is the index that its upstream gives it, `index` the one that it has here."""

    __slots__ = (
        *("body", "has_text", "held", "index", "is_new", "is_told", "kind", "name", "pieces", "place", "said_id"),
    )

    def __init__(self, place: int | None, index: int, kind: str) -> None:
        self.place = place
        self.index = index
        self.kind = kind
        self.said_id = self.name = ""
        self.held: Json = {}
        self.body: Json = {}
        self.pieces: list[str] = []
        self.is_new, self.is_told, self.has_text = True, False, False

    @property
    def text(self) -> str:
        """Its arguments as far as they have come."""
        return "".join(self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether they are complete."""
        return self.text.rstrip().endswith(("}", "]")) and jsons.is_json(self.text)

    def released(self, ids: CallIds, *, anyhow: bool = False) -> list[Json]:
        """Its first piece, with all that has come; none if it was passed on, or nobody knows its name yet."""
        if self.is_told or not (self.name or anyhow):
            return []
        self.is_told = True
        body = {**self.body, "name": self.name, BODIES[self.kind]: self.text}
        held = {**self.held, "index": self.index, "id": ids.distinct(self.said_id)}
        return [{**held, "type": held.get("type") or self.kind, self.kind: body}]
