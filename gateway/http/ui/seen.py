"""Which pages were seen, for the trail: an event for each page that somebody opens (guarantee §12.12)."""

import re

from gateway.http.ui.page import Page, PageRoute
from gateway.models.trail import NewEvent
from gateway.ports import Clock
from gateway.storage.trail.append import Trail

TOLD = ("of", "number", "page", "part", "branch")
"""Parameters that say what of its object a page shows: they are told with their values, others by their names alone, as
what is looked for may be what somebody wrote."""
PLAIN = re.compile(r"[\w-]{1,64}", re.ASCII)
STILL_OPEN = 600.0
"""Seconds in which a page that brings itself up to date is the same view."""
MOST_OPEN = 10_000


class SeenPages:
    """Records what pages show, before they are sent."""

    def __init__(self, trail: Trail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._open: dict[tuple[str | None, str], float] = {}

    async def note(self, page: Page, route: PageRoute) -> None:
        """Records that a page was seen, where its route says as what.

        Raises:
            StorageUnavailable: it cannot be recorded, so it is not shown.
        """
        if route.seen is None or page.viewer is None:
            return
        view = (page.viewer.key_id, page.link())
        now = self._clock.monotonic()
        if page.is_partial and now - self._open.get(view, -STILL_OPEN) < STILL_OPEN:
            return
        given = page.query
        details: dict[str, object] = {
            name: given[name] for name in TOLD if name in given and PLAIN.fullmatch(given[name])
        }
        if others := sorted(name for name in given if name not in TOLD and PLAIN.fullmatch(name)):
            details["parameters"] = others
        object_id = next(iter(page.params.values()), None)
        await self._trail.saw(NewEvent(page.viewer.actor, route.seen, object_id, page.viewer.tenant, details))
        if len(self._open) >= MOST_OPEN:
            self._open.clear()
        self._open[view] = now
