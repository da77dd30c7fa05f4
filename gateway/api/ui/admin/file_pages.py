"""`/ui/admin/files`: files of all tenants, uploaded, followed while they are read, and deleted, as by the API."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

from gateway.api.auth import ANONYMOUS
from gateway.api.files.endpoint import UploadForm
from gateway.api.pagination import refuse_nul
from gateway.api.server.asgi import header
from gateway.api.server.middleware import note_fault
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, redirect
from gateway.core import errors, jsons
from gateway.core.config import setting_sections
from gateway.core.types.files import FILE_PURPOSES, UPLOADED, HeldFile
from gateway.documents.files import UploadFields
from gateway.storage import stored_files

FILES = f"{PATH}/admin/files"
ON_A_PAGE = 50
MAX_TENANT = 128
CSRF, EXPIRES = "csrf", "expires"
LASTS = {
    "": "never",
    "3600": "after an hour",
    "86400": "after a day",
    "604800": "after a week",
    "2592000": "in 30 days",
}
"""Seconds after which a file expires, and their texts in the form."""
JSON = {"content-type": "application/json"}
FILE_NOTICES = {"deleted": "The file is deleted.", "uploaded": "The file is uploaded."}


class FilePages:
    """The pages. Where there are no keys, they change only the files of clients without a key."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._files = parts.files

    def routes(self) -> tuple[PageRoute, ...]:
        one = "/admin/files/{file_id}"
        return (
            PageRoute("GET", "/admin/files", self.list, seen="files.seen", is_admin=True),
            PageRoute("POST", "/admin/files", self.upload, is_admin=True, is_streamed=True),
            PageRoute("GET", one, self.show, seen="file.seen", is_admin=True),
            PageRoute("POST", f"{one}/delete", self.delete, is_admin=True),
        )

    async def list(self, page: PageRequest, problem: errors.GatewayError | None = None) -> PageAnswer:
        """Shows the files (`GET /ui/admin/files`)."""
        tenant, after = page.query.get("tenant") or None, page.query.get("after") or None
        for name, value in (("tenant", tenant), ("after", after)):
            refuse_nul(name, value)
            if value is not None and len(value) > MAX_TENANT:
                raise errors.invalid(name, f"must have at most {MAX_TENANT} characters")
        work = partial(
            stored_files.list_files, tenant=tenant, limit=ON_A_PAGE + 1, now=self._parts.clock.now(), after=after
        )
        found = await self._parts.transactions.run(work)
        shown = found[:ON_A_PAGE]
        return await page.render(
            "admin_files.html",
            problem.status if problem is not None else 200,
            files=shown,
            tenant=tenant or "",
            first=page.link(after=None) if after else None,
            more=page.link(after=shown[-1].file.id) if len(found) > ON_A_PAGE else None,
            is_reading=any(each.file.status == UPLOADED for each in shown),
            problem=problem,
            done=FILE_NOTICES.get(page.query.get("done", "")),
            purposes=FILE_PURPOSES,
            lasts=LASTS,
            max_bytes=self._parts.settings.files.max_bytes,
            why_not=self._why_not(page),
            own_tenant=page.someone.caller().tenant,
        )

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows a file (`GET /ui/admin/files/{file_id}`)."""
        held = await self._held(page)
        return await page.render("admin_file.html", held=held, file=held.file, is_reading=held.file.status == UPLOADED)

    async def upload(self, page: PageRequest) -> PageAnswer:
        """Uploads a file (`POST /ui/admin/files`); answers the script with JSON, else with a page."""
        wants_json = "json" in (header(page.scope, b"accept") or "")
        try:
            added = f"{FILES}/{await self._add(page)}"
        except errors.GatewayError as error:
            if not wants_json:
                return await self.list(page, error)
            note_fault(page.scope["gateway"], error)
            return PageAnswer(jsons.dumps(error.body()), error.status, {**JSON, **error.headers})
        return PageAnswer(jsons.dumps({"location": added}), 200, JSON) if wants_json else redirect(added)

    async def delete(self, page: PageRequest) -> PageAnswer:
        """Deletes a file (`POST /ui/admin/files/{file_id}/delete`)."""
        viewer = page.someone
        if not page.form.get("confirm"):
            raise errors.invalid("confirm", "must be checked: deleting a file cannot be undone")
        held = await self._held(page)
        if viewer.key is None and held.tenant != ANONYMOUS:
            raise errors.Forbidden("Without a login only files of clients without a key are deleted here.")
        await self._files.delete(held.tenant, held.file.id, viewer.actor)
        return redirect(f"{FILES}?done=deleted")

    async def _held(self, page: PageRequest) -> HeldFile:
        """Returns the file that the path names. Raises FileNotFound: there is none."""
        work = partial(stored_files.find_held, tenant=None, file_id=page.params["file_id"], now=self._parts.clock.now())
        return await self._parts.transactions.run(work)

    async def _add(self, page: PageRequest) -> str:
        """Stores the uploaded file; returns its id. The token is checked before anything of the file is stored: it is
        in a header, or before the file. Raises Forbidden: nothing of this viewer's is stored here."""
        if (reason := self._why_not(page)) is not None:
            raise errors.Forbidden(reason)
        caller = page.someone.caller()
        form = UploadForm(page.scope, page.receive, self._parts.settings.files.max_bytes, own=(CSRF, EXPIRES))

        async def pieces() -> AsyncGenerator[bytes, None]:
            async for piece in form.pieces():
                check()
                yield piece

        def check() -> None:
            page.check_token(header(page.scope, b"x-csrf-token") or form.field(CSRF) or "")

        def said() -> UploadFields:
            check()
            if not form.is_chosen:
                raise errors.missing("file")
            lasts = form.field(EXPIRES) or ""
            if lasts not in LASTS:
                raise errors.invalid(EXPIRES, f"must be one of {', '.join(filter(None, LASTS))}")
            return replace(form.said(), expires_after=float(lasts) if lasts else None)

        return (await self._files.add(caller, pieces(), said)).id

    def _why_not(self, page: PageRequest) -> str | None:
        """Returns why this viewer may upload nothing here; None: uploads are allowed."""
        viewer = page.someone
        if viewer.key is not None and setting_sections.USER not in viewer.roles:
            return "To upload files your key needs the role 'user' as well: they are kept for its tenant."
        if not self._parts.serves(viewer.caller()):
            return "This gateway passes files on to the default upstream. Set files.serve: on to keep them here."
        return None
