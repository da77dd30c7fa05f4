"""`/ui/conversations`: what was asked lately, and what it cost."""

from gateway.http.ui.entrance import Parts
from gateway.http.ui.page import Answer, Page


class Conversations:
    """`GET /ui/conversations`"""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def show(self, page: Page) -> Answer:
        """The page."""
        return await page.render("conversations.html")
