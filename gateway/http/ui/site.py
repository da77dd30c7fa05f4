"""The pages as one application: finds the page, sees to login and forms, answers faults with a page for a person."""

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from gateway.errors import Forbidden, GatewayError, MethodNotAllowed, NotFound
from gateway.http.edge import ClientDisconnected, Receive, Scope, Send, as_gateway_error, note_fault
from gateway.http.near import is_foreign
from gateway.http.receive import header, read_body
from gateway.http.ui.login import LOGIN_PATH, Logins
from gateway.http.ui.page import Answer, Page, PageRoute, redirect
from gateway.http.ui.parts import PATH, PageParts
from gateway.http.ui.rendering import files
from gateway.http.ui.routes import page_routes
from gateway.http.ui.seen import SeenPages

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


class Site:
    """All pages. Every answer has the same headers, errors and files included."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._logins = Logins(parts)
        self._seen = SeenPages(parts.trail, parts.clock)
        own = (
            PageRoute("GET", "/login", self._logins.show, is_open=True),
            PageRoute("POST", "/login", self._logins.log_in, is_open=True),
            PageRoute("POST", "/logout", self._logins.log_out),
            *self._logins.sign_in_routes(),
        )
        routes = (*page_routes(parts), *own)
        self._links = tuple((route.nav, PATH + route.path) for route in routes if route.nav is not None)
        self._routes = [(_pattern(route.path), route) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = Page(scope, receive, self._parts, {}, links=self._links)
        try:
            answer = await self._answer(page)
        except ClientDisconnected:
            raise
        except Exception as error:  # noqa: BLE001 - the edge's rule, with a page in place of JSON
            fault = as_gateway_error(error, page.request_id)
            note_fault(scope["gateway"], fault)
            answer = await _error(page, fault)
        await _send(send, answer)

    async def _answer(self, page: Page) -> Answer:
        scope = page.scope
        if page.path.startswith(STATIC) and scope["method"] in LOOKING:
            return _file(page.path.removeprefix(STATIC))
        if is_foreign(scope):
            raise Forbidden("A page of another site asked for this.")
        viewer = await self._logins.viewer(scope)
        page.viewer, page.csrf = viewer, await self._logins.token(scope)
        route, page.params = self._find(page)
        if viewer is None and not route.is_open:
            return await _to_login(page)
        if viewer is not None and viewer.own_tenant is not None:
            scope["gateway"]["tenant"] = viewer.own_tenant
        if route.method not in LOOKING:
            page.body = await read_body(scope, page.receive, route.max_body)
            await self._logins.check_form(page)
        answer = await route.handler(page)
        await self._seen.note(page, route)
        return answer

    def _find(self, page: Page) -> tuple[PageRoute, dict[str, str]]:
        """
        Raises:
            NotFound, MethodNotAllowed: there is no such page.
        """
        path = page.path.removeprefix(PATH).rstrip("/") or "/"
        method = "GET" if page.scope["method"] == "HEAD" else page.scope["method"]
        found = [(route, match.groupdict()) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        for route, params in found:
            if route.method == method:
                return route, params
        if found:
            raise MethodNotAllowed("This method is not allowed here.")
        raise NotFound("There is nothing at this path.")


async def _to_login(page: Page) -> Answer:
    """To the login, and from there to this page; a part of a page that is open makes it load anew.

    With a link of another site no browser sends the session's cookie: the page then asks for itself once more.
    """
    if page.is_partial:
        return Answer(b"", 401, {"hx-refresh": "true", "content-length": "0"})
    if page.scope["method"] not in LOOKING:
        return redirect(LOGIN_PATH)
    if header(page.scope, b"sec-fetch-site") in ("cross-site", "same-site"):
        return await page.render("again.html")
    return redirect(f"{LOGIN_PATH}?{urlencode({'next': page.link()})}")


def _file(name: str) -> Answer:
    found = files().get(name)
    if found is None:
        raise NotFound("There is nothing at this path.")
    kind, content = found
    return Answer(content, 200, {"content-type": kind, "cache-control": FOR_GOOD})


async def _error(page: Page, fault: GatewayError) -> Answer:
    shown = await page.render("error.html", fault.status, status_code=fault.status, message=fault.message)
    return Answer(shown.body, fault.status, {**shown.headers, **fault.headers})


async def _send(send: Send, answer: Answer) -> None:
    headers = {**HEADERS, **answer.headers}
    body = answer.body
    if isinstance(body, bytes):
        headers["content-length"] = str(len(body))
    pairs = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    pairs += [(b"set-cookie", each.encode("latin-1", "replace")) for each in answer.cookies]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    if not isinstance(body, bytes):
        async for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


def _pattern(path: str) -> re.Pattern[str]:
    parts: Sequence[str] = re.split(r"\{(\w+)\}", path)
    texts = [f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts)]
    return re.compile("".join(texts))
