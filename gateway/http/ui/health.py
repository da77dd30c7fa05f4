"""`/ui/health`: what works, what does not, and since when."""

from gateway.http.ui.entrance import Parts
from gateway.http.ui.page import Answer, Page


class Health:
    """`GET /ui/health`"""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def show(self, page: Page) -> Answer:
        """The page."""
        status, said = await self._parts.ready.state()
        return await page.render("health.html", ready=status == 200, reason=said.get("reason"))
