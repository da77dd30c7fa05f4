"""`/ui/conversations/{id}`: one conversation turn by turn, its windows, its costs, its branches."""

import re

from gateway.errors import ConversationNotFound, NotFound
from gateway.explain.reader import PAGE, Explained
from gateway.http.inner.validation import CONVERSATION_ID
from gateway.http.ui.page import Answer, Page
from gateway.http.ui.parts import PATH, PageParts
from gateway.storage.conversations.outline import Outlines
from gateway.storage.large.documents import LargeDocuments

MESSAGE_ID = re.compile(r"msg_[0-9A-Za-z_-]{1,60}\Z")
NUMBER = re.compile(r"[1-9][0-9]{0,5}\Z")
CHARS_PER_TOKEN = 4
"""For the strip below a bar, which only says how much left beside what stayed."""
DEEPEST = 12
"""Forks above a branch for which its line in the tree is moved to the right."""


class OneConversation:
    """`GET /ui/conversations/{conversation_id}`"""

    def __init__(self, parts: PageParts) -> None:
        self._explained = Explained(Outlines(parts.transactions), LargeDocuments(parts.transactions, parts.clock))

    async def show(self, page: Page) -> Answer:
        """The page, of its last turns; `page` and `branch` name others.

        Raises:
            NotFound: there is none of that id to be seen, or it has no such branch or page.
        """
        name, branch, number = page.params["conversation_id"], page.query.get("branch"), page.query.get("page")
        if not CONVERSATION_ID.match(name):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        if branch is not None and not MESSAGE_ID.match(branch):
            raise NotFound("No such branch.", param="branch")
        if number is not None and not NUMBER.match(number):
            raise NotFound("No such page.", param="page")
        found = await self._explained.conversation(
            page.tenant, name, branch=branch, page=int(number) if number is not None else None
        )
        if branch is not None and not found.turns:
            raise NotFound("No such branch.", param="branch")
        pages = max(1, -(-found.turns // PAGE))
        here = (found.first - 1) // PAGE + 1
        if here > pages:
            raise NotFound("No such page.", param="page")
        return await page.render(
            "conversation.html",
            found=found,
            outline=found.outline,
            pages=pages,
            here=here,
            newer=page.link(page=str(here + 1)) if here < pages else None,
            older=page.link(page=str(here - 1)) if here > 1 else None,
            requests=f"{PATH}/requests",
            per_token=CHARS_PER_TOKEN,
            deepest=DEEPEST,
        )
