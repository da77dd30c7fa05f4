"""What the pages under `/ui` are made of."""

from dataclasses import dataclass
from datetime import datetime

from gateway.config.settings import Settings
from gateway.http.auth import Authenticator
from gateway.http.chat.endpoint import ChatCompletions
from gateway.http.operations import Ready
from gateway.http.statistics import Observed, Statistics
from gateway.ports import CacheBackend, Clock, IdentityDocuments
from gateway.storage.conversations.path import PastTurns
from gateway.storage.database.engine import Transactions
from gateway.storage.store import ConversationStore
from gateway.storage.trail.append import Trail
from gateway.turn.pipeline import Pipeline
from gateway.upstream.routing.router import ConfiguredRouter

PATH = "/ui"


@dataclass(frozen=True, slots=True)
class PageParts:
    """Parts of the gateway that pages show or ask."""

    settings: Settings
    clock: Clock
    auth: Authenticator
    transactions: Transactions
    store: ConversationStore
    past: PastTurns
    observed: Observed
    ready: Ready
    statistics: Statistics
    chat: ChatCompletions
    pipeline: Pipeline
    router: ConfiguredRouter
    cache: CacheBackend
    started: datetime
    """When the process began."""
    trail: Trail
    identity: IdentityDocuments
