"""What the pages under `/ui` depend on."""

from datetime import datetime

from gateway.api.auth import KeyAuthenticator
from gateway.api.chat.endpoint import ChatCompletions
from gateway.api.conversations.replay_endpoint import ReplayEndpoint
from gateway.api.keys.endpoint import KeyEndpoints
from gateway.api.messages.endpoint import MessagesEndpoint
from gateway.api.operations import ReadyEndpoint
from gateway.api.responses.endpoint import ResponsesEndpoint
from gateway.api.statistics import ObservedParts, StatisticsEndpoint
from gateway.core import ports
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.documents.files import FileService, FilesHere
from gateway.pipeline import Pipeline
from gateway.storage import ConversationStore, audit_events
from gateway.storage.conversations import PastReader
from gateway.storage.database import DatabaseTransactions
from gateway.upstream import HttpIdentityDocuments
from gateway.upstream.routing import ConfiguredRouter

PATH = "/ui"


@record
class PageParts:
    """Parts of the gateway that pages show or call."""

    settings: Settings
    clock: ports.Clock
    auth: KeyAuthenticator
    transactions: DatabaseTransactions
    store: ConversationStore
    past: PastReader
    observed: ObservedParts
    ready: ReadyEndpoint
    statistics: StatisticsEndpoint
    chat: ChatCompletions
    responses: ResponsesEndpoint
    messages: MessagesEndpoint
    pipeline: Pipeline
    router: ConfiguredRouter
    cache: ports.CacheBackend
    started: datetime
    """When the process began."""
    trail: audit_events.AuditLog
    identity: HttpIdentityDocuments
    keys: KeyEndpoints
    files: FileService
    replays: ReplayEndpoint
    serves: FilesHere
