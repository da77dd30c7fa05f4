"""`/ui/requests/{id}`: one request, what was forwarded of it and why, and its bill; its texts; what if an artifact had
been in full."""

import asyncio
import re

from gateway.base.ids import completion_of
from gateway.errors import NotFound
from gateway.explain.artifacts import ExplainedArtifact
from gateway.explain.document import document_part, whole_document
from gateway.explain.lines import text_of_message
from gateway.explain.messages import counted
from gateway.explain.reader import Explained
from gateway.explain.request import ExplainedRequest, StoredRequest, explained_request
from gateway.http.ui.page import Answer, Page
from gateway.http.ui.parts import PATH, PageParts
from gateway.http.ui.pieces import MOST_ARTIFACTS, Text, marked, marked_part, shown_messages
from gateway.http.ui.what_if import WhatIfs, can_ask
from gateway.storage.conversations.outline import Outlines
from gateway.storage.large.documents import LargeDocuments

REQUEST_ID = re.compile(r"(?:req_|chatcmpl-|resp_|msg_)[0-9A-Za-z_-]{1,60}\Z")
NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
MOST_WANTED_CHARS = 300
"""Characters of what is looked for in a document."""
SAVED = 'attachment; filename="text.txt"'
PLAIN = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


class OneRequest:
    """`show` (GET), `text` (GET, one of its texts) and `in_full` (POST, a dry run)."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._large = LargeDocuments(parts.transactions, parts.clock)
        self._explained = Explained(Outlines(parts.transactions), self._large)
        self._what_ifs = WhatIfs(parts)

    async def show(self, page: Page) -> Answer:
        """The page.

        Raises:
            NotFound: there is none of that id to be seen.
        """
        stored, found = await self._found(page)
        artifacts = [
            (number, each, marked(each) if each.original is not None else [], _shown_beside(found, number))
            for number, each in enumerate(found.artifacts[:MOST_ARTIFACTS])
        ]
        return await page.render(
            "request.html",
            found=found,
            entry=found.entry,
            counts=counted(found.changes or ()),
            messages=shown_messages(found.changes) if found.changes is not None else None,
            artifacts=artifacts,
            more_artifacts=max(0, len(found.artifacts) - MOST_ARTIFACTS),
            can_ask=can_ask(stored),
            question=Text.of(found.question),
            answer=Text.of(text_of_message(found.answer)) if found.answer is not None else None,
            prompt=Text.of(found.planner_prompt, 24_000) if found.planner_prompt else None,
            prefix_texts=_prefix_texts(found),
            conversations=f"{PATH}/conversations",
            here=f"{PATH}/requests/{found.entry.request_id}",
            requests=f"{PATH}/requests",
        )

    async def text(self, page: Page) -> Answer:
        """One text as it is, to be saved: `of` is `said`, `forwarded` (with the number of a message), `artifact` (with
        the number of one) or `question`, `answer`, `prompt`.

        Raises:
            NotFound: there is none.
        """
        _, found = await self._found(page)
        number, kind = _number(page, "number", 0), page.query.get("of", "")
        if kind == "artifact" and (artifact := _large_artifact(found, number)) is not None:
            whole = whole_document(self._large, found.entry.tenant, artifact.excerpt_of)
            return Answer(whole, 200, {**PLAIN, "content-disposition": SAVED})
        text = _text(found, kind, number)
        if text is None:
            raise NotFound("There is no such text of this request.", param="of")
        body = text.encode("utf-8", "surrogatepass")
        return Answer(body, 200, {**PLAIN, "content-disposition": SAVED})

    async def document(self, page: Page) -> Answer:
        """A part of a large document: `number` says which artifact of the request it is, `part` which part, `find`
        words or a place by which one is looked for.

        Raises:
            NotFound: there is no such request, or no such document of it.
        """
        _, found = await self._found(page)
        number = _number(page, "number", 0)
        artifact = _large_artifact(found, number)
        if artifact is None:
            raise NotFound("There is no such document of this request.", param="number")
        wanted = page.query.get("find", "").strip()[:MOST_WANTED_CHARS]
        part = await document_part(
            self._large, found.entry.tenant, artifact.excerpt_of, _number(page, "part", 1), wanted
        )
        if part is None:
            raise NotFound("The document is not stored any more.", param="number")
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

    async def in_full(self, page: Page) -> Answer:
        """What would have been forwarded with an artifact in full, and what it would have cost. Nothing is stored, and
        no model is asked.

        Raises:
            NotFound: there is no such request, or no such artifact of it.
        """
        stored, found = await self._found(page)
        artifact_id = page.form.get("artifact", "")
        artifact = next((each for each in found.artifacts if each.artifact_id == artifact_id), None)
        if artifact is None or not can_ask(stored):
            raise NotFound("There is no such artifact of this request.", param="artifact")
        what_if = await self._what_ifs.in_full(stored, found, artifact)
        return await page.render(
            "what_if.html",
            found=found,
            entry=found.entry,
            artifact=artifact,
            what_if=what_if,
            messages=shown_messages(what_if.changes),
            here=f"{PATH}/requests/{found.entry.request_id}",
        )

    async def _found(self, page: Page) -> tuple[StoredRequest, ExplainedRequest]:
        name = page.params["request_id"]
        if not REQUEST_ID.match(name):
            raise NotFound("No such request.", param="request_id")
        stored = await self._explained.request(page.tenant, completion_of(name))
        min_chars, router = self._parts.settings.context.document_min_chars, self._parts.router
        prices = lambda: router.facts(stored.entry.model).prices  # noqa: E731 - asked for where no bill tells them
        return stored, await asyncio.to_thread(explained_request, stored, min_chars, prices)


def _number(page: Page, name: str, otherwise: int) -> int:
    """A number of the address; -1 for what is none."""
    given = page.query.get(name)
    if given is None:
        return otherwise
    return int(given) if NUMBER.match(given) else -1


def _large_artifact(found: ExplainedRequest, number: int) -> ExplainedArtifact | None:
    """The artifact of that number if it is a large document."""
    artifact = found.artifacts[number] if 0 <= number < len(found.artifacts) else None
    return artifact if artifact is not None and artifact.excerpt_of else None


def _shown_beside(found: ExplainedRequest, number: int) -> Text | None:
    """What was shown of an artifact in other words than its own: a summary, excerpts of turns."""
    each = found.artifacts[number]
    if each.shown is None or (each.original is not None and not each.passages.missing):
        return None
    return Text.of(each.shown.text)


def _prefix_texts(found: ExplainedRequest) -> tuple[Text | None, Text | None]:
    """The message with which a prefix ended, then and now."""
    if found.divergence is None:
        return None, None
    before, after = found.divergence.before, found.divergence.after
    return tuple(Text.of(text_of_message(each)) if each is not None else None for each in (before, after))  # type: ignore[return-value]


def _text(found: ExplainedRequest, kind: str, number: int) -> str | None:
    changes = found.changes or []
    if kind in ("said", "forwarded"):
        if not 0 <= number < len(changes):
            return None
        body = changes[number].before if kind == "said" else changes[number].after
        return text_of_message(body) if body is not None else None
    if kind == "artifact":
        return found.artifacts[number].original if 0 <= number < len(found.artifacts) else None
    if kind == "answer":
        return text_of_message(found.answer) if found.answer is not None else None
    return {"question": found.question, "prompt": found.planner_prompt}.get(kind)
