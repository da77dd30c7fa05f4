"""`/ui/try`: a small chat, with its bill beside it. What is asked here goes the way of any other chat request; it is
billed to whoever is logged in, or to the key that is entered where the gateway has none of its own (guarantee §13.10).
"""

from collections.abc import Mapping
from typing import Any

from gateway.base import jsons
from gateway.config.auth_settings import USER
from gateway.errors import Forbidden, GatewayError
from gateway.http.edge import EVENT_STREAM, note_fault
from gateway.http.receive import header
from gateway.http.ui.page import Answer, Page
from gateway.http.ui.parts import PageParts
from gateway.http.ui.try_answer import Asked, bill_rows
from gateway.http.ui.try_form import CHOICES, INTERNAL, KEPT, Entered, as_chat, entered
from gateway.models.exchange import Caller

Json = dict[str, Any]
STREAM = "text/event-stream"
JSON = {"content-type": "application/json"}
ASKED_FOR = ("conversation", "model")
"""Parameters of the address that fill the form."""


class TryIt:
    """The page, and what is asked on it: streamed to its script, as a whole page to a browser without JavaScript."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def show(self, page: Page) -> Answer:
        """`GET /ui/try`"""
        kept = {name: page.query[name] for name in ASKED_FOR if page.query.get(name)}
        return await self._render(page, kept)

    async def ask(self, page: Page) -> Answer:
        """`POST /ui/try`"""
        is_stream = STREAM in (header(page.scope, b"accept") or "")
        form = Entered({})
        try:
            form = entered(page)
            asked = Asked(self._parts.chat, page, await self._caller(page, form.key))
            body = as_chat(form, stream=is_stream)
            if is_stream:
                await asked.begin(body)
                return Answer(asked.events(), 200, EVENT_STREAM)
            told = await asked.whole(body)
        except GatewayError as error:
            note_fault(page.scope["gateway"], error)
            if is_stream:
                return Answer(jsons.dumps(error.body()), error.status, {**JSON, **error.headers})
            return await self._render(page, form.kept, error.status, draft=form.message, problem=error.message)
        kept = form.kept | ({"conversation": told.conversation} if told.conversation else {})
        rows = bill_rows(told.metadata)
        return await self._render(page, kept, question=form.message, answer="".join(told.texts), bill=rows)

    async def _caller(self, page: Page, key: str) -> Caller:
        """
        Raises:
            Forbidden: whoever is logged in may look, and spend nothing.
        """
        viewer = page.viewer
        if viewer is not None and viewer.own_tenant is not None:
            if USER not in viewer.roles:
                raise Forbidden("This key may look, and spend nothing: it has no role 'user'.")
            return viewer.caller()
        given = f"Bearer {key}" if key else header(page.scope, b"authorization")
        headers = [(b"authorization", given.encode("latin-1", "replace"))] if given else []
        return await self._parts.auth.caller({"method": "POST", "headers": headers})

    async def _render(self, page: Page, kept: Mapping[str, str], status: int = 200, **shown: Any) -> Answer:
        settings, viewer = self._parts.settings, page.viewer
        models = list(dict.fromkeys(e.model_name for e in settings.model_list if "*" not in e.model_name))
        has_patterns = any("*" in entry.model_name for entry in settings.model_list)
        has_keys = settings.auth.wants_keys
        given: Json = {"problem": None, "draft": "", "question": None, "answer": None, "bill": (), **shown}
        return await page.render(
            "try.html",
            status,
            kept={name: kept.get(name, "") for name in KEPT},
            is_set=any(kept.get(name) for name in (*CHOICES, *INTERNAL, "max_input_tokens")),
            models=models,
            any_model=has_patterns or settings.serves_unlisted,
            choices=CHOICES,
            internal=INTERNAL,
            may_ask=not has_keys or (viewer is not None and USER in viewer.roles),
            takes_key=not has_keys,
            needs_key=not has_keys and not settings.has_operator_key(),
            **given,
        )
