"""`/ui/requests/{id}`: one request, what was forwarded of it and why, and its bill; its texts; what would have been
with an artifact in full, or another model. `/ui/compare`: two requests side by side."""

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from gateway.api.conversations.replay_request import ReplayField, RequestMaker, replay_field
from gateway.api.server.asgi import CLIENT, until_disconnect
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, redirect
from gateway.core import errors, ids
from gateway.core.config import setting_sections
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import agents, audit_log, bill, chat, past_turns, tool_steps
from gateway.core.types.artifacts import ArtifactPlan
from gateway.core.types.chat import ChatRequest, RequestCaller, WhatIf
from gateway.core.types.conversation import BranchPoint
from gateway.inspection import (
    ExplainedRequest,
    ExplanationReader,
    StoredRequest,
    document_parts,
    explained_artifacts,
    explained_request,
    message_changes,
)
from gateway.pipeline import not_paused, turn_replays
from gateway.storage import LargeDocuments

# What pages show of texts that somebody wrote: bounded, with how much more there is (guarantee §13.3).

TEXT_CHARS = 3000
"""Characters of one text on a page; its address returns all of it."""
LINE_CHARS = 400
MAX_LINES = 300
"""Lines of one difference on a page."""
AROUND_CHARS = 240
"""Characters at the beginning and the end of a text that was left out between passages."""
MARKED_CHARS = 12_000
"""Characters of one marked original on a page."""
MAX_MESSAGES = 150
"""Messages that a page shows one by one; of runs of unchanged ones the first and the last."""
RUN = 2
MAX_ARTIFACTS = 60


@record
class PageText:
    """A text as a page shows it; `more`: how many characters it leaves out."""

    text: str
    more: int = 0

    @classmethod
    def of(cls, text: str, most: int = TEXT_CHARS) -> "PageText":
        return cls(text[:most], max(0, len(text) - most))


@record
class OriginalPiece:
    """A piece of an original. `kind`: `shown` was forwarded, `left` was not, `skipped` is not on the page: then `count`
    are its characters."""

    kind: str
    text: str = ""
    count: int = 0


def marked(artifact: explained_artifacts.ExplainedArtifact) -> list[OriginalPiece]:
    """Splits the original of an artifact at its passages, as far as a page shows it."""
    found: list[OriginalPiece] = []
    text, left = artifact.original or "", MARKED_CHARS
    for piece in _pieces(text, artifact.passages.spans, _left):
        if left <= 0:
            break
        found.append(piece if len(piece.text) <= left else OriginalPiece(piece.kind, piece.text[:left]))
        left -= len(piece.text)
    rest = len(text) - sum(len(each.text) + each.count for each in found)
    return [*found, OriginalPiece("skipped", "", rest)] if rest > 0 else found


def marked_part(artifact: explained_artifacts.ExplainedArtifact, text: str) -> list[OriginalPiece]:
    """Splits a part of a large document, all of it, so that what was shown of the document is marked."""
    shown = (
        artifact.shown.text
        if artifact.shown is not None and artifact.record.get("strategy") != explained_artifacts.EXCLUDED
        else ""
    )
    spans = document_parts.found_again(text, shown).spans if shown else ()
    return [*_pieces(text, spans, lambda left: [OriginalPiece("left", left)] if left else [])]


def _pieces(
    text: str, spans: Sequence[document_parts.Span], left: Callable[[str], Iterable[OriginalPiece]]
) -> Iterator[OriginalPiece]:
    """Yields a text piece by piece. `left`: makes those of what was not forwarded, which may be empty."""
    at = 0
    for start, end in spans:
        yield from left(text[at:start])
        yield OriginalPiece("shown", text[start:end])
        at = end
    yield from left(text[at:])


def _left(text: str) -> Iterator[OriginalPiece]:
    """Yields what was not forwarded: all of a short text, else its beginning and end."""
    if len(text) <= 2 * AROUND_CHARS:
        if text:
            yield OriginalPiece("left", text)
        return
    yield OriginalPiece("left", text[:AROUND_CHARS])
    yield OriginalPiece("skipped", "", len(text) - 2 * AROUND_CHARS)
    yield OriginalPiece("left", text[-AROUND_CHARS:])


@record
class ShownMessage:
    """A message on the page; `index` names it in addresses. For a run of unchanged messages, `count` is their number,
    and the rest does not matter."""

    index: int
    change: str = "skipped"
    origin: str = ""
    role: str = ""
    agent: str | None = None
    before_chars: int = 0
    after_chars: int = 0
    said: PageText | None = None
    forwarded: PageText | None = None
    lines: tuple[message_changes.DiffLine, ...] = ()
    lines_left: int = 0
    is_whole: bool = True
    count: int = 1


def shown_messages(changes: Sequence[message_changes.MessageChange]) -> list[ShownMessage]:
    """Returns the messages as a page shows them: long runs of the same kind in short, the latest in full."""
    found: list[ShownMessage] = []
    index = 0
    while index < len(changes):
        end = index
        plain = changes[index].change in ("unchanged", "left_out")
        while plain and end < len(changes) and _alike(changes[end], changes[index]):
            end += 1
        if end - index > 2 * RUN + 1:
            found += [_shown(n, changes[n]) for n in range(index, index + RUN)]
            found.append(ShownMessage(index, "skipped", changes[index].change, count=end - index - 2 * RUN))
            found += [_shown(n, changes[n]) for n in range(end - RUN, end)]
        else:
            end = max(end, index + 1)
            found += [_shown(n, changes[n]) for n in range(index, end)]
        index = end
    if len(found) > MAX_MESSAGES:
        skipped = len(found) - MAX_MESSAGES
        found = [ShownMessage(0, "skipped", "", count=skipped), *found[-MAX_MESSAGES:]]
    return found


def _alike(one: message_changes.MessageChange, other: message_changes.MessageChange) -> bool:
    return one.change == other.change and one.origin == other.origin


def _shown(index: int, each: message_changes.MessageChange) -> ShownMessage:
    lines = each.lines.lines if each.lines is not None else ()
    cut = tuple(message_changes.DiffLine(line.kind, line.text[:LINE_CHARS], line.count) for line in lines[:MAX_LINES])
    same = each.after is each.before or each.change == "unchanged"
    return ShownMessage(
        index,
        each.change,
        each.origin,
        each.role,
        each.agent,
        each.before_chars,
        each.after_chars,
        PageText.of(message_changes.text_of_message(each.before)) if each.before is not None else None,
        PageText.of(message_changes.text_of_message(each.after)) if each.after is not None and not same else None,
        cut,
        max(0, len(lines) - MAX_LINES),
        each.lines.is_whole if each.lines is not None else True,
    )


# A past request made again without its model: what would be forwarded with an artifact in full, and what it would
# cost (guarantee §13.3).
#
# It is a dry run behind the message that the request went on from, with the window it had and the plan of its
# planner. No model is asked, and nothing is stored. What is not stored of a request (its tools, its parameters) it
# does not have; names stand for the tools.


@record
class WhatIfAnswer:
    """The result of a dry run. `fault`: why there is none.

    Attributes:
        changes: what was forwarded then beside what would be forwarded.
        is_in_full: whether the artifact is; else `fault`, or its block was fixed by an earlier step.
        tokens_then, tokens: of the prompt, by the gateway's count.
        cost_then: of the prompt, as billed. `least`, `most`: of the call that was not made, in USD; None: unknown.
    """

    changes: list[message_changes.MessageChange]
    is_in_full: bool = False
    tokens_then: int | None = None
    tokens: int | None = None
    cost_then: Decimal | None = None
    least: Decimal | None = None
    most: Decimal | None = None
    fault: str | None = None


class WhatIfs:
    """Makes dry runs for the page."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def told(
        self,
        stored: StoredRequest,
        found: ExplainedRequest,
        artifact: explained_artifacts.ExplainedArtifact | None = None,
        model: str | None = None,
    ) -> WhatIfAnswer:
        """Runs the request as a dry run, with that artifact in full, or for another model."""
        try:
            request = self._request(stored, found, artifact, model)
            told = not_paused(await self._parts.pipeline.dry_run(request))
        except errors.GatewayError as error:
            return WhatIfAnswer([], fault=error.message)
        changes = await asyncio.to_thread(message_changes.compared, found.sent.messages or [], told["messages"])
        used = told["response_metadata"].get("context_utilization") or {}
        is_in_full = artifact is None or _is_in_full(artifact, used, told["messages"])
        primary = next((call for call in found.bill.calls if call.purpose == "primary"), None)
        return WhatIfAnswer(
            changes,
            is_in_full,
            found.used.get("tokens_used"),
            used.get("tokens_used"),
            primary.prompt_cost if primary is not None else None,
            told["estimated_cost"]["min"],
            told["estimated_cost"]["max"],
        )

    def _request(
        self,
        stored: StoredRequest,
        found: ExplainedRequest,
        artifact: explained_artifacts.ExplainedArtifact | None,
        model: str | None,
    ) -> ChatRequest:
        """Makes the request again. Raises GatewayError: a rule of chats is broken, or the model is served no longer."""
        entry, path, past = stored.entry, stored.path, stored.request
        assert path is not None
        assert past is not None
        context = {"mode": "simple", "goal": found.used.get("goal") or "synthesis"}
        if model is None and isinstance(budget := found.used.get("budget_tokens"), int) and budget > 0:
            context |= {"max_input_tokens": budget}  # another model has its own
        change = past_turns.ReplayChanges(model, parameters=_tools(stored, found.used), context=context)
        bills = {entry.request_id: past_turns.PastBill(stored.completion, bill.CostSums())}
        ask, behind = turn_replays.single_request(path, past, bills, change)
        replay = past_turns.ReplayRun("replay_what_if", path.conversation_id, behind or "", 1, 1, change)
        caller = RequestCaller(entry.tenant, key_id=entry.key_id, project=entry.project)
        make = RequestMaker(replay, caller, self._parts.settings, self._parts.clock, chat.never_leaves)
        branch = BranchPoint(replay.replay_id, behind, found.number or 1, until=ask.until)
        request = make(ask, ask.messages, branch, dry_run=True)
        names = (artifact.artifact_id.partition("-")[0],) if artifact is not None else ()
        what_if = WhatIf(frozenset(names), _plan(found.plan))
        return replace(request, options=replace(request.options, what_if=what_if))


def can_ask(stored: StoredRequest) -> bool:
    """Returns whether the request can be made again: stored, with a managed window, and written by its client."""
    used = stored.entry.metadata.get("context_utilization") or {}
    agent = stored.entry.metadata.get("agent")
    is_worded = isinstance(agent, dict) and agent.get("type") != agents.CHAT
    return stored.request is not None and stored.request.answer is not None and bool(used) and not is_worded


def _is_in_full(artifact: explained_artifacts.ExplainedArtifact, used: Mapping[str, Any], messages: list[Json]) -> bool:
    name = artifact.artifact_id.partition("-")[0]
    records = [each for each in used.get("artifacts_processed", ()) if each["artifact_id"].startswith(name)]
    return any(each["strategy"] == explained_artifacts.FULL for each in records) or _holds(
        messages, artifact.original or ""
    )


def _plan(plan: Mapping[str, Any] | None) -> ArtifactPlan | None:
    try:
        return ArtifactPlan.model_validate(plan) if plan is not None else None
    except ValidationError:  # of a later version
        return None


def _tools(stored: StoredRequest, used: Mapping[str, Any]) -> Json:
    """Makes tools of the names that were called, if the request had tools: else results would be sent as text."""
    if not (used.get("breakdown") or {}).get("tools") or stored.path is None:
        return {}
    names = {
        tool_steps.asked(call)[0] for each in stored.path.messages for call in tool_steps.calls_of(each.message.body)
    }
    tools = [{"type": "function", "function": {"name": name}} for name in sorted(names)]
    return {"tools": tools} if tools else {}


def _holds(messages: list[Json], text: str) -> bool:
    """Returns whether a message has the text word for word."""
    return bool(text) and any(text in str(message.get("content")) for message in messages)


REQUEST_ID = re.compile(r"(?:req_|chatcmpl-|resp_|msg_)[0-9A-Za-z_-]{1,60}\Z")
NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
ATTEMPT = re.compile(r"[\w-]{16,64}", re.ASCII)
MAX_WANTED_CHARS = 300
"""Characters of a text searched in a document."""
SAVED = 'attachment; filename="text.txt"'
PLAIN = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


@record
class PaidReplay:
    """The cost of running a turn again, in USD (None: not known), and the `attempt` that identifies a form that is sent
    twice; or `why_not`."""

    why_not: str
    fields: ReplayField | None = None
    least: Decimal | None = None
    most: Decimal | None = None
    attempt: str = ""


class OneRequest:
    """`show` (GET), `text` (GET, one of its texts), `in_full` and `replay` (POST, dry runs), `replay_paid` (POST),
    `compare` (GET, two)."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._large = LargeDocuments(parts.transactions, parts.clock)
        self._explained = ExplanationReader(parts.past, self._large)
        self._what_ifs = WhatIfs(parts)

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page. Raises NotFound: there is no request of that id to be seen."""
        stored, found = await self._found(page)
        artifacts = [
            (number, each, marked(each) if each.original is not None else [], _shown_beside(found, number))
            for number, each in enumerate(found.artifacts[:MAX_ARTIFACTS])
        ]
        return await page.render(
            "request.html",
            found=found,
            entry=found.entry,
            counts=message_changes.counted(found.changes or ()),
            messages=shown_messages(found.changes) if found.changes is not None else None,
            artifacts=artifacts,
            more_artifacts=max(0, len(found.artifacts) - MAX_ARTIFACTS),
            can_ask=can_ask(stored),
            models=served(self._parts.settings),
            question=PageText.of(found.question),
            answer=PageText.of(message_changes.text_of_message(found.answer)) if found.answer is not None else None,
            prompt=PageText.of(found.planner_prompt, 24_000) if found.planner_prompt else None,
            prefix_texts=_prefix_texts(found),
            conversations=f"{PATH}/conversations",
            here=f"{PATH}/requests/{found.entry.request_id}",
            requests=f"{PATH}/requests",
            branch=stored.path.messages[-1].message.message_id if stored.path is not None else None,
        )

    async def text(self, page: PageRequest) -> PageAnswer:
        """Sends one text unchanged, to be saved: `of` is `said`, `forwarded` (with the number of a message), `artifact`
        (with the number of one) or `question`, `answer`, `prompt`.
        Raises NotFound: there is none."""
        _, found = await self._found(page)
        number, kind = _number(page, "number", 0), page.query.get("of", "")
        if kind == "artifact" and (artifact := _large_artifact(found, number)) is not None:
            whole = document_parts.whole_document(self._large, found.entry.tenant, artifact.excerpt_of)
            return PageAnswer(whole, 200, {**PLAIN, "content-disposition": SAVED})
        text = _text(found, kind, number)
        if text is None:
            raise errors.NotFound("There is no such text of this request.", param="of")
        body = text.encode("utf-8", "surrogatepass")
        return PageAnswer(body, 200, {**PLAIN, "content-disposition": SAVED})

    async def document(self, page: PageRequest) -> PageAnswer:
        """Shows a part of a large document: `number` is that of the request's artifact, `part` that of the part, `find`
        a text or a position to search for.
        Raises NotFound: there is no such request, or no such document of it."""
        _, found = await self._found(page)
        number = _number(page, "number", 0)
        artifact = _large_artifact(found, number)
        if artifact is None:
            raise errors.NotFound("There is no such document of this request.", param="number")
        wanted = page.query.get("find", "").strip()[:MAX_WANTED_CHARS]
        part = await document_parts.document_part(
            self._large, found.entry.tenant, artifact.excerpt_of, _number(page, "part", 1), wanted
        )
        if part is None:
            raise errors.NotFound("The document is not stored any more.", param="number")
        return await page.render(
            "document.html",
            entry=found.entry,
            artifact=artifact,
            index=number,
            part=part,
            wanted=wanted,
            pieces=await asyncio.to_thread(marked_part, artifact, part.text),
            here=f"{PATH}/requests/{found.entry.request_id}",
        )

    async def in_full(self, page: PageRequest) -> PageAnswer:
        """Shows what would have been forwarded with an artifact in full, and its cost. Nothing is stored, and no model
        is called.
        Raises NotFound: there is no such request, or no such artifact of it."""
        stored, found = await self._found(page)
        artifact_id = page.form.get("artifact", "")
        artifact = next((each for each in found.artifacts if each.artifact_id == artifact_id), None)
        if artifact is None or not can_ask(stored):
            raise errors.NotFound("There is no such artifact of this request.", param="artifact")
        return await self._render_what_if(page, found, await self._what_ifs.told(stored, found, artifact), artifact)

    async def replay(self, page: PageRequest) -> PageAnswer:
        """Shows what would have been forwarded to another model, and its cost. Nothing is stored, and no model is
        called.
        Raises NotFound: there is no such request, it cannot be made again, or that model is none of `model_list`."""
        stored, found = await self._found(page)
        model = page.form.get("model", "")
        if model not in served(self._parts.settings) or not can_ask(stored):
            raise errors.NotFound("There is no such model.", param="model")
        return await self._render_what_if(
            page,
            found,
            await self._what_ifs.told(stored, found, model=model),
            None,
            model,
            await self._offer(page, found, model),
        )

    async def replay_paid(self, page: PageRequest) -> PageAnswer:
        """Runs the turn of a request with another model, on a branch of its conversation, at the viewer's cost; then
        shows both requests side by side. A form that is sent twice runs it once.

        Raises:
            NotFound: there is no such request, it cannot be made again, or that model is none of `model_list`.
            Forbidden: the viewer may not pay for it.
            InvalidRequest: it was not confirmed.
        """
        stored, found = await self._found(page)
        model, attempt = page.form.get("model", ""), page.form.get("attempt", "")
        if model not in served(self._parts.settings) or not can_ask(stored):
            raise errors.NotFound("There is no such model.", param="model")
        if not page.form.get("confirm") or not ATTEMPT.fullmatch(attempt):
            raise errors.InvalidRequest("Confirm the paid replay.", param="confirm")
        offer = await self._offer(page, found, model)
        if offer.fields is None or page.viewer is None:
            raise errors.Forbidden(offer.why_not)
        entry, viewer, replays = found.entry, page.viewer, self._parts.replays
        details = {"model": model}
        event = audit_log.NewEvent(viewer.actor, "request.replayed", entry.request_id, entry.tenant, details)
        await self._parts.trail.saw(event)
        client = page.scope.get(CLIENT)
        has_left = chat.never_leaves if client is None else client.has_left
        conversation_id = str(entry.conversation_id)
        work = replays.run(viewer.caller(), conversation_id, offer.fields, attempt, has_left)
        made = await until_disconnect(page.receive, work)
        if not made:  # it was done before
            return redirect(f"{PATH}/conversations/{quote(conversation_id, safe='')}")
        return redirect(f"{PATH}/compare?{urlencode({'a': entry.request_id, 'b': made[-1]})}")

    async def _offer(self, page: PageRequest, found: ExplainedRequest, model: str) -> "PaidReplay":
        """Returns whether the viewer may run the turn again, and at what cost."""
        viewer, entry = page.viewer, found.entry
        if viewer is None or (setting_sections.USER not in viewer.roles and viewer.key_id is not None):
            return PaidReplay("This key is read-only: it has no role 'user'.")
        caller = viewer.caller()
        if caller.tenant != entry.tenant or entry.conversation_id is None:
            return PaidReplay(f"Only keys of tenant {entry.tenant} may replay its requests.")
        number = await self._parts.replays.turn_of(entry.tenant, entry.conversation_id, entry.request_id)
        if number is None:
            return PaidReplay("The request is not on the conversation's current branch.")
        change = {"model": model, "from_turn": number, "to_turn": number, "context": {"planning": "never"}}
        try:
            fields = replay_field(change)
            price = await self._parts.replays.price(caller, entry.conversation_id, fields)
        except errors.GatewayError as error:
            return PaidReplay(error.message)
        return PaidReplay("", fields, price["min"], price["max"], secrets.token_urlsafe(16))

    async def compare(self, page: PageRequest) -> PageAnswer:
        """Shows two requests side by side (`GET /ui/compare?a=…&b=…`); a form for their ids where one is missing.
        Raises NotFound: one of them is not to be seen."""
        names = [page.query.get(name, "").strip() for name in ("a", "b")]
        sides = [(await self._found(page, name))[1] for name in names] if all(names) else []
        page.seen_ids = tuple(dict.fromkeys(each.entry.request_id for each in sides))
        messages = None
        if sides and all(each.sent.messages is not None for each in sides):
            sent = [each.sent.messages or [] for each in sides]
            messages = shown_messages(await asyncio.to_thread(message_changes.compared, *sent))
        return await page.render(
            "compare.html",
            wanted=names,
            sides=sides,
            answers=[
                message_changes.text_of_message(each.answer) if each.answer is not None else None for each in sides
            ],
            messages=messages,
            requests=f"{PATH}/requests",
        )

    async def _render_what_if(
        self,
        page: PageRequest,
        found: ExplainedRequest,
        what_if: WhatIfAnswer,
        artifact: explained_artifacts.ExplainedArtifact | None,
        model: str | None = None,
        offer: "PaidReplay | None" = None,
    ) -> PageAnswer:
        return await page.render(
            "what_if.html",
            offer=offer,
            found=found,
            entry=found.entry,
            artifact=artifact,
            model=model,
            what_if=what_if,
            messages=shown_messages(what_if.changes),
            here=f"{PATH}/requests/{found.entry.request_id}",
        )

    async def _found(self, page: PageRequest, name: str | None = None) -> tuple[StoredRequest, ExplainedRequest]:
        name = page.params["request_id"] if name is None else name
        if not REQUEST_ID.match(name):
            raise errors.NotFound("No such request.", param="request_id")
        stored = await self._explained.request(page.tenant, ids.completion_of(name))
        min_chars, router = self._parts.settings.context.document_min_chars, self._parts.router
        prices = lambda: router.facts(stored.entry.model).prices  # noqa: E731 - asked for where no bill tells them
        return stored, await asyncio.to_thread(explained_request.explained_request, stored, min_chars, prices)


def served(settings: Settings) -> list[str]:
    return list(dict.fromkeys(each.model_name for each in settings.model_list if "*" not in each.model_name))


def _number(page: PageRequest, name: str, otherwise: int) -> int:
    """Parses a number of the address; -1 for anything else."""
    given = page.query.get(name)
    if given is None:
        return otherwise
    return int(given) if NUMBER.match(given) else -1


def _large_artifact(found: ExplainedRequest, number: int) -> explained_artifacts.ExplainedArtifact | None:
    """Returns the artifact of that number if it is a large document; else None."""
    artifact = found.artifacts[number] if 0 <= number < len(found.artifacts) else None
    return artifact if artifact is not None and artifact.excerpt_of else None


def _shown_beside(found: ExplainedRequest, number: int) -> PageText | None:
    """Returns what was shown of an artifact that is not its own text: a summary, excerpts of turns."""
    each = found.artifacts[number]
    if each.shown is None or (each.original is not None and not each.passages.missing):
        return None
    return PageText.of(each.shown.text)


def _prefix_texts(found: ExplainedRequest) -> tuple[PageText | None, PageText | None]:
    """Returns the message with which a prefix ended, then and now."""
    if found.divergence is None:
        return None, None
    before, after = found.divergence.before, found.divergence.after
    return tuple(
        PageText.of(message_changes.text_of_message(each)) if each is not None else None for each in (before, after)
    )  # type: ignore[return-value]


def _text(found: ExplainedRequest, kind: str, number: int) -> str | None:
    changes = found.changes or []
    if kind in ("said", "forwarded"):
        if not 0 <= number < len(changes):
            return None
        body = changes[number].before if kind == "said" else changes[number].after
        return message_changes.text_of_message(body) if body is not None else None
    if kind == "artifact":
        return found.artifacts[number].original if 0 <= number < len(found.artifacts) else None
    if kind == "answer":
        return message_changes.text_of_message(found.answer) if found.answer is not None else None
    return {"question": found.question, "prompt": found.planner_prompt}.get(kind)
