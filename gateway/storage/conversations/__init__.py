"""Conversations as their clients manage them: items, deletion, export and import."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage.conversations.attachments import content_id_of
    from gateway.storage.conversations.conversation_records import ConversationRecords
    from gateway.storage.conversations.purge_user import UserPurge
    from gateway.storage.conversations.reading import PastReader
    from gateway.storage.conversations.replay_store import ReplayStore
    from gateway.storage.conversations.transfers import ConversationTransfer
else:
    __getattr__ = lazy_face(__name__)
