"""What a page's author uses.

A page is an async function `page(page: Page) -> Answer` in the route table of `router.py`. It reads `page.tenant`
(None: all tenants) and must hand it to every query; what belongs to another tenant is a `NotFound`, as what does not
exist. It ends with `return await page.render("its_template.html", name=value, …)`.

Templates extend `base.html` (blocks `title`, `heading`, `summary`, `content`, `head`, `scripts`) and are autoescaped; a
name that they were not given is an error. In each: `page`, `viewer` (None before the login), `csrf`, `static(name)`,
`links` of the navigation, `request_id`, `version`. `macros.html` (import it `with context`) has the figures: `usd`,
`tokens`, `number`, `size`, `time`, `bar`, `legend`, `badge`, `pager`, `csrf_field`, `said`, `identifier`. Text that a
user or a model wrote goes through `said`: it is text, never markup, and cannot turn the direction of text beside it.
The policy of the page allows no inline style or script: widths are attributes of SVG, colours classes of `ui.css`.

Every change is a POST with `{{ csrf_field() }}` in its form (or the header `x-csrf-token`), which is checked before the
page is called.
"""

import hmac
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from gateway.api.auth import ANONYMOUS
from gateway.api.pagination import parameters
from gateway.api.passthrough.bodies import FormBody, FormPart, understood
from gateway.api.server.asgi import Receive, Scope, header
from gateway.api.ui.dependencies import PageParts
from gateway.api.ui.rendering import rendered
from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.types import audit_log, report_lists
from gateway.core.types.chat import RequestCaller
from gateway.core.types.keys import KeyPolicy

HTML = {"content-type": "text/html; charset=utf-8"}
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 1000
MAX_FORM_BYTES = 64 * 1024
"""Of a form without files: one of 16 MiB takes seconds to decode."""
ALL_ROLES = frozenset((setting_sections.VIEWER, setting_sections.ADMIN))


@record
class PageViewer:
    """The viewer. `tenant`: the only one whose data may be seen; None: all. `key_id`: of the key of the login; None
    where there are no keys, on loopback."""

    tenant: str | None
    roles: frozenset[str] = ALL_ROLES
    key_id: str | None = None
    name: str | None = None
    own_tenant: str | None = None
    project: str | None = None
    key: KeyPolicy | None = None

    @property
    def is_admin(self) -> bool:
        """Whether pages for administrators are shown; where there are no keys, to everybody on this machine."""
        return setting_sections.ADMIN in self.roles

    @property
    def sees_all(self) -> bool:
        """Whether all tenants' data may be seen."""
        return self.tenant is None

    @property
    def actor(self) -> audit_log.AuditActor:
        """The viewer, as the trail records it."""
        return audit_log.AuditActor(audit_log.LOCAL) if self.key is None else audit_log.actor_of_key(self.key)

    def caller(self) -> RequestCaller:
        """Returns the caller as whom the viewer's own requests to models are made and billed."""
        if self.own_tenant is None:
            return RequestCaller(ANONYMOUS)
        return RequestCaller(self.own_tenant, None, {}, self.key_id, self.project, self.roles, key=self.key)


@record
class PageAnswer:
    """What a page sends. A body in pieces is sent as they arrive."""

    body: bytes | AsyncIterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(HTML))
    cookies: tuple[str, ...] = ()
    """Values of `Set-Cookie`."""


Handler = Callable[["PageRequest"], Awaitable[PageAnswer]]


@record
class PageRoute:
    """One page. `path` is below `/ui`, with `{name}` for a part of it; `nav` is its title in the navigation; `is_open`:
    it is for those, too, who are not logged in; `max_body`: bytes of what is posted to it; `seen`: the action by
    which the trail has it that somebody saw the page; `is_admin`: it is for role `admin` alone; `is_streamed`: the
    page reads what is posted itself, while it comes, and checks its token (`PageRequest.check_token`)."""

    method: str
    path: str
    handler: Handler
    nav: str | None = None
    is_open: bool = False
    max_body: int = MAX_FORM_BYTES
    seen: str | None = None
    is_admin: bool = False
    is_streamed: bool = False


@dataclass(slots=True)
class PageRequest:
    """A request for a page. `params` are the named parts of its path, `query` its parameters, each with its first
    value; `body` is what was posted."""

    scope: Scope
    receive: Receive
    parts: PageParts
    params: Mapping[str, str]
    viewer: PageViewer | None = None
    csrf: str = ""
    links: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    multipart: tuple[FormPart, ...] | None = None
    """The posted form with files, after it has been read."""
    seen_ids: tuple[str, ...] | None = None
    """Ids of what the page shows, for the trail; None: the object that its path names."""
    read_query: Mapping[str, str] | None = None
    """The parameters, after they have been read."""

    @property
    def tenant(self) -> str | None:
        """The tenant whose data this page may show; None: all. Never read where nobody is logged in."""
        return self.someone.tenant

    @property
    def someone(self) -> PageViewer:
        """The viewer. Never read where nobody is logged in."""
        if self.viewer is None:
            raise RuntimeError("nobody is logged in")
        return self.viewer

    @property
    def request_id(self) -> str:
        """Of this request, as in the log."""
        return str(self.scope["gateway"]["request_id"])

    @property
    def path(self) -> str:
        """The whole path, `/ui` included."""
        return str(self.scope["path"])

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters. A page asks for them some fifty times, and they may be 64 KB."""
        if self.read_query is None:
            self.read_query = parameters(self.scope["query_string"].decode("latin-1"))
        return self.read_query

    @property
    def is_partial(self) -> bool:
        """Whether htmx asks for a part of a page that is open."""
        return header(self.scope, b"hx-request") == "true"

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of the form that was posted, each with its first value; `files` are apart.
        Raises UnsupportedMediaType: it is no form; InvalidRequest: it is too long, or has too many fields."""
        kind = (header(self.scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind == MULTIPART:
            fields = [(part.name, part.content) for part in self._posted() if part.filename is None]
            return {name: content.decode("utf-8", "replace") for name, content in reversed(fields)}
        if kind != FORM and self.body:
            raise errors.UnsupportedMediaType("A form is expected here.", param="content-type")
        if len(self.body) > MAX_FORM_BYTES:
            raise errors.RequestTooLarge(f"A form without files exceeds {MAX_FORM_BYTES} bytes.")
        try:
            found = parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise errors.InvalidRequest(f"The form has more than {MAX_FIELDS} fields.", code="invalid_form") from None
        return {name: values[0] for name, values in found.items()}

    def check_token(self, given: str) -> None:
        """Raises Forbidden: what was posted does not come from a form of this session."""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.csrf.encode()):
            raise errors.Forbidden("This form is out of date or from another login. Reload the page.")

    @property
    def files(self) -> tuple[FormPart, ...]:
        """The files that were posted. A browser sends an empty one, without a name, where none was chosen.
        Raises UnsupportedMediaType: it is no form."""
        return tuple(part for part in self._posted() if part.filename is not None)

    def _posted(self) -> tuple[FormPart, ...]:
        if self.multipart is None:
            read = understood(self.body, self.scope["headers"])
            if not isinstance(read, FormBody):
                raise errors.UnsupportedMediaType("A form is expected here.", param="content-type")
            self.multipart = read.parts
        return self.multipart

    def link(self, **changes: str | None) -> str:
        """Returns this page's address with other parameters; None removes one."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def beside(self, found: report_lists.ListPage[Any]) -> dict[str, Any]:
        """Returns the addresses of the adjacent parts of a list, and of where a search that stopped continues."""
        older = self.link(older=str(found.older), newer=None) if found.older else None
        newer = self.link(newer=str(found.newer), older=None) if found.newer else None
        return {"older": older, "newer": newer, "further": older if found.ended == found.older else newer}

    async def render(self, template: str, status: int = 200, **context: Any) -> PageAnswer:
        """Renders the page from a template, in a thread, so that streams continue."""
        given = {"page": self, "viewer": self.viewer, "csrf": self.csrf, "request_id": self.request_id}
        return PageAnswer(await rendered(template, {**given, "links": self.links, **context}), status)


def csv_file(body: bytes | AsyncIterable[bytes], name: str) -> PageAnswer:
    """Returns a file that the browser saves under that name."""
    kept = f'attachment; filename="{name}"'
    return PageAnswer(body, 200, {"content-type": "text/csv; charset=utf-8", "content-disposition": kept})


def redirect(to: str, cookies: tuple[str, ...] = ()) -> PageAnswer:
    """Redirects the browser to another page, by GET. `to`: a path below `/ui`."""
    return PageAnswer(b"", 303, {"location": to, "content-length": "0"}, cookies)
