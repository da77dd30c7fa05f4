"""The pages as one application: finds the page, checks login and forms, answers faults with a page for a person.

It also has the list of conversations, `/ui/conversations`.
"""

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.routing import compile_path

from gateway.api.request.validation import check_conversation_id
from gateway.api.server.asgi import ClientDisconnected, Receive, Scope, Send, header, read_body
from gateway.api.server.middleware import as_gateway_error, is_foreign, note_fault
from gateway.api.ui.admin.file_pages import FilePages
from gateway.api.ui.admin.key_pages import KeyPages
from gateway.api.ui.admin.model_pages import ModelPages
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, redirect
from gateway.api.ui.pages.cost_pages import CostPages
from gateway.api.ui.pages.health_page import HealthPage
from gateway.api.ui.pages.login import LOGIN_PATH, UiLogins
from gateway.api.ui.pages.request_list_page import OverviewPage, RequestListPage
from gateway.api.ui.pages.request_page import OneRequest
from gateway.api.ui.pages.try_it import TryIt
from gateway.api.ui.rendering import files
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.types import audit_log, bill, report_lists
from gateway.inspection import FIRST_SAID, ExplanationReader, TurnChoice, request_search
from gateway.storage import LargeDocuments, audit_events
from gateway.storage.reports import request_list

ON_A_PAGE = 50
SEARCHED = 30_000
"""Conversations that one page searches for a text, a user or a model, for which there is no index."""
LONGEST = 300
"""Characters of a searched text."""
FIELDS = ("text", "id", "session", "user", "model")
"""Searchable fields, by the names of `ConversationChoice`."""


class ConversationPages:
    """`GET /ui/conversations`: the most recently active first; `older` and `newer` name the position in the list from
    which a page begins."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._search = request_search.RequestSearch(parts.transactions)

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page. Raises InvalidRequest: the searched text is too long, or the position is none."""
        part = _part(page)
        found = await self._parts.transactions.run(partial(request_list.list_conversations, part=part))
        return await page.render(
            "conversations.html",
            found=found.found,
            sums=sum((each.sums for each in found.found), bill.CostSums()),
            wanted={name: page.query.get(name, "") for name in FIELDS},
            is_search=any(page.query.get(name) for name in FIELDS),
            is_sealed=bool(part.having.text) and await self._search.is_sealed(),
            is_live=part.at is None,
            ended=found.ended,
            **page.beside(found),
        )


def _part(page: PageRequest) -> report_lists.ListPart[report_lists.ConversationChoice]:
    wanted: dict[str, Any] = {}
    for name in FIELDS:
        given = page.query.get(name, "").strip()
        if len(given) > LONGEST:
            raise errors.invalid(name, f"must have at most {LONGEST} characters")
        wanted[name] = given or None
    choice = report_lists.ConversationChoice(tenant=page.tenant, **wanted)
    part = report_lists.ListPart(choice, limit=ON_A_PAGE, searched=SEARCHED)
    for direction in report_lists.DIRECTIONS:
        if place := page.query.get(direction):
            return replace(part, at=_place(direction, place), direction=direction)
    return part


def _place(name: str, given: str) -> report_lists.ListPosition:
    with suppress(ValueError):
        place = report_lists.ListPosition.parse(given)
        if place.id and place.time >= report_lists.EPOCH:
            return place
    raise errors.invalid(name, "must be a place in the list")


# `/ui/conversations/{id}`: one conversation turn by turn, its windows, its costs, its branches.

MESSAGE_ID = re.compile(r"msg_[0-9A-Za-z_-]{1,60}\Z")
NUMBER = re.compile(r"[1-9][0-9]{0,5}\Z")
UI_TURNS_PER_PAGE = 20
"""Turns on one page, with their messages."""
DEEPEST = 12
"""Forks above a branch for which its line in the tree is moved to the right."""


class OneConversation:
    """`GET /ui/conversations/{conversation_id}`"""

    def __init__(self, parts: PageParts) -> None:
        self._explained = ExplanationReader(parts.past, LargeDocuments(parts.transactions, parts.clock))

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page, of its last turns; `before`, `after` (the message that begins a turn), `turn` and `branch`
        name others.
        Raises NotFound: there is no conversation of that id to be seen, or it has no such branch or turn."""
        name, branch, number = page.params["conversation_id"], page.query.get("branch"), page.query.get("turn")
        before, after = page.query.get("before"), page.query.get("after")
        check_conversation_id(name)
        for given, param in ((branch, "branch"), (before, "before"), (after, "after")):
            if given is not None and not MESSAGE_ID.match(given):
                raise errors.NotFound(f"No such {'branch' if param == 'branch' else 'turn'}.", param=param)
        if number is not None and not NUMBER.match(number):
            raise errors.NotFound("No such turn.", param="turn")
        choice = TurnChoice(
            before, after, int(number) if number is not None else None, UI_TURNS_PER_PAGE, with_words=True
        )
        found = await self._explained.conversation(page.tenant, name, branch=branch, choice=choice)
        if branch is not None and not found.turns:
            raise errors.NotFound("No such branch.", param="branch")
        if number is not None and not found.page:
            raise errors.NotFound("No such turn.", param="turn")
        here, viewer = found.page, page.viewer
        last = found.first + len(here) - 1
        own = viewer.own_tenant if viewer is not None else None
        return await page.render(
            "conversation.html",
            found=found,
            outline=found.outline,
            newer=page.link(after=here[-1].message_id, before=None, turn=None) if here and last < found.turns else None,
            older=page.link(before=here[0].message_id, after=None, turn=None) if here and found.first > 1 else None,
            requests=f"{PATH}/requests",
            first_said=FIRST_SAID,
            may_go_on=found.is_current and own in (None, found.outline.tenant),
            last_model=next((turn.models[-1] for turn in reversed(here) if turn.models), None),
            deepest=DEEPEST,
        )


# Which pages were seen, for the trail: an event for each page that a viewer opens (guarantee §12.12).

TOLD = ("of", "number", "page", "part", "branch")
"""Parameters that select what a page shows of its object: the trail records their values, but only the names of others,
since a searched text may be what a user wrote."""
PLAIN = re.compile(r"[\w-]{1,64}", re.ASCII)
STILL_OPEN = 600.0
"""Seconds in which a page that refreshes itself counts as the same view."""
MAX_OPEN = 10_000


class SeenPages:
    """Records what pages show, before they are sent: an event for each object."""

    def __init__(self, trail: audit_events.AuditLog, clock: ports.Clock) -> None:
        self._trail = trail
        self._open: BoundedCache[tuple[str | None, str], bool] = BoundedCache(
            MAX_OPEN, now=clock.monotonic, ttl=STILL_OPEN
        )

    async def note(self, page: PageRequest, route: PageRoute) -> None:
        """Records that a page was seen, if its route names an action for that.
        Raises StorageUnavailable: it cannot be recorded, so it is not shown."""
        if route.seen is None or page.viewer is None:
            return
        view = (page.viewer.key_id, page.link())
        if page.is_partial and self._open.peek(view):
            return
        given = page.query
        details: dict[str, object] = {
            name: given[name] for name in TOLD if name in given and PLAIN.fullmatch(given[name])
        }
        if others := sorted(name for name in given if name not in TOLD and PLAIN.fullmatch(name)):
            details["parameters"] = others
        named = page.seen_ids if page.seen_ids is not None else (next(iter(page.params.values()), None),)
        for object_id in named:
            await self._trail.saw(
                audit_log.NewEvent(page.viewer.actor, route.seen, object_id, page.viewer.tenant, details)
            )
        self._open.put(view, True)


# The pages, in the order of the navigation. A page's author adds its routes here; all else is in `page.py`.

MAX_UPLOAD = 16 * 2**20
"""Bytes of a question with its files at `/ui/try`; larger ones go to the API, which counts them as they arrive."""


def page_routes(parts: PageParts) -> tuple[PageRoute, ...]:
    """Lists all pages but login and logout. The first route whose path and method match applies."""
    conversations, costs, health, try_it = ConversationPages(parts), CostPages(parts), HealthPage(parts), TryIt(parts)
    conversation, request, requests = OneConversation(parts), OneRequest(parts), RequestListPage(parts)
    return (
        PageRoute("GET", "/", OverviewPage(parts).show, nav="Overview", seen="overview.seen"),
        PageRoute("GET", "/requests", requests.show, nav="Requests", seen="requests.seen"),
        PageRoute("GET", "/requests.csv", requests.csv, seen="requests.seen"),
        PageRoute("GET", "/refused", requests.refused, seen="requests.seen"),
        PageRoute("GET", "/search", requests.search, seen="requests.seen"),
        PageRoute("GET", "/conversations", conversations.show, nav="Conversations", seen="conversations.seen"),
        PageRoute("GET", "/conversations/{conversation_id}", conversation.show, seen="conversation.seen"),
        PageRoute("GET", "/requests/{request_id}", request.show, seen="request.seen"),
        PageRoute("GET", "/requests/{request_id}/text", request.text, seen="request.text_seen"),
        PageRoute("GET", "/requests/{request_id}/document", request.document, seen="request.text_seen"),
        PageRoute("POST", "/requests/{request_id}/in-full", request.in_full, seen="request.seen"),
        PageRoute("POST", "/requests/{request_id}/replay", request.replay, seen="request.seen"),
        PageRoute("POST", "/requests/{request_id}/replay-paid", request.replay_paid),
        PageRoute("GET", "/compare", request.compare, seen="request.seen"),
        PageRoute("GET", "/costs", costs.show, nav="Costs", seen="costs.seen"),
        PageRoute("GET", "/costs.csv", costs.csv, seen="costs.seen"),
        PageRoute("GET", "/try", try_it.show, nav="Try it"),
        PageRoute("POST", "/try", try_it.ask, max_body=min(parts.settings.server.max_body_bytes, MAX_UPLOAD)),
        PageRoute("GET", "/glossary", _glossary),
        PageRoute("GET", "/health", health.show, nav="Health"),
        PageRoute("GET", "/admin", _administration, nav="Admin", is_admin=True),
        *KeyPages(parts).routes(),
        *FilePages(parts).routes(),
        *ModelPages(parts).routes(),
    )


async def _glossary(page: PageRequest) -> PageAnswer:
    """Shows the glossary (`GET /ui/glossary`)."""
    return await page.render("glossary.html")


async def _administration(page: PageRequest) -> PageAnswer:
    """Redirects to the first page of administration (`GET /ui/admin`)."""
    return redirect(f"{PATH}/admin/keys")


POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
STATIC = f"{PATH}/static/"
FOR_GOOD = "public, max-age=31536000, immutable"
LOOKING = ("GET", "HEAD")


class UiRouter:
    """All pages. Every answer has the same headers, errors and files included."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._logins = UiLogins(parts)
        self._seen = SeenPages(parts.trail, parts.clock)
        own = (
            PageRoute("GET", "/login", self._logins.show, is_open=True),
            PageRoute("POST", "/login", self._logins.log_in, is_open=True),
            PageRoute("POST", "/logout", self._logins.log_out),
            *self._logins.sign_in_routes(),
        )
        routes = (*page_routes(parts), *own)
        self._links = [
            ((route.nav, PATH + route.path.rstrip("/")), route.is_admin) for route in routes if route.nav is not None
        ]
        self._routes = [(compile_path(route.path)[0], route) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = PageRequest(scope, receive, self._parts, {})
        try:
            answer = await self._answer(page)
        except ClientDisconnected:
            raise
        except Exception as error:  # noqa: BLE001 - the edge's rule, with a page in place of JSON
            fault = as_gateway_error(error, page.request_id)
            note_fault(scope["gateway"], fault)
            answer = await _error(page, fault)
        await _send(send, answer, is_head=scope["method"] == "HEAD")

    async def _answer(self, page: PageRequest) -> PageAnswer:
        scope = page.scope
        if page.path.startswith(STATIC) and scope["method"] in LOOKING:
            return _file(page.path.removeprefix(STATIC))
        if is_foreign(scope):
            raise errors.Forbidden("The request came from another site's page.")
        viewer = await self._logins.viewer(scope)
        page.viewer, page.csrf = viewer, await self._logins.token(scope)
        route, page.params = self._find(page)
        if viewer is None and not route.is_open:
            return await _to_login(page)
        if viewer is not None:
            page.links = tuple(link for link, admin in self._links if viewer.is_admin or not admin)
            if route.is_admin and not viewer.is_admin:
                raise errors.Forbidden("This page is for keys of role 'admin'.")
        if viewer is not None and viewer.own_tenant is not None:
            scope["gateway"]["tenant"] = viewer.own_tenant
        if route.method not in LOOKING and not route.is_streamed:
            page.body = await read_body(scope, page.receive, route.max_body)
            page.check_token(header(page.scope, b"x-csrf-token") or page.form.get("csrf", ""))
        answer = await route.handler(page)
        await self._seen.note(page, route)
        return answer

    def _find(self, page: PageRequest) -> tuple[PageRoute, dict[str, str]]:
        """Returns the route of a request. Raises NotFound, MethodNotAllowed: there is no such page."""
        path = page.path.removeprefix(PATH).rstrip("/") or "/"
        method = "GET" if page.scope["method"] == "HEAD" else page.scope["method"]
        found = [(route, match.groupdict()) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        for route, params in found:
            if route.method == method:
                return route, params
        if found:
            methods = {route.method for route, _ in found}
            raise errors.MethodNotAllowed(methods | {"HEAD"} if "GET" in methods else methods)
        raise errors.NotFound("There is nothing at this path.")


async def _to_login(page: PageRequest) -> PageAnswer:
    """Redirects to the login, and from there to this page; for a part of an open page, makes the page reload.

    On a link from another site no browser sends the session's cookie: the page then requests itself one more time.
    """
    if page.is_partial:
        return PageAnswer(b"", 401, {"hx-refresh": "true", "content-length": "0"})
    if page.scope["method"] not in LOOKING:
        return redirect(LOGIN_PATH)
    if header(page.scope, b"sec-fetch-site") in ("cross-site", "same-site"):
        return await page.render("again.html")
    return redirect(f"{LOGIN_PATH}?{urlencode({'next': page.link()})}")


def _file(name: str) -> PageAnswer:
    found = files().get(name)
    if found is None:
        raise errors.NotFound("There is nothing at this path.")
    kind, content = found
    return PageAnswer(content, 200, {"content-type": kind, "cache-control": FOR_GOOD})


async def _error(page: PageRequest, fault: errors.GatewayError) -> PageAnswer:
    shown = await page.render("error.html", fault.status, status_code=fault.status, message=fault.message)
    return PageAnswer(shown.body, fault.status, {**shown.headers, **fault.headers})


async def _send(send: Send, answer: PageAnswer, *, is_head: bool) -> None:
    headers = {**HEADERS, **answer.headers}
    body = answer.body
    if isinstance(body, bytes):
        headers["content-length"] = str(len(body))
    pairs = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    pairs += [(b"set-cookie", each.encode("latin-1", "replace")) for each in answer.cookies]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    if not isinstance(body, bytes):
        if not is_head:
            async for piece in body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})
