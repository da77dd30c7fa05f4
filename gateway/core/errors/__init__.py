"""The error tree. Each class has its HTTP status, OpenAI `type` and `code`; the docstring says when it is raised.

GatewayError
├── InvalidRequest 400                bad input, names the field in `param`
│   ├── ContextLengthExceeded 400     cannot be made to fit (guarantee §4 I1)
│   ├── ContentRefused 400            by a guard (guarantee §12.9)
│   ├── RequestTooLarge 413
│   ├── HeadersTooLarge 431
│   ├── RequestTimeout 408
│   ├── UnsupportedMediaType 415
│   ├── InvalidHttp 400               not HTTP/1.1
│   ├── IdempotencyKeyInUse 409       its request is being answered
│   ├── IdempotencyKeyMismatch 422    it was used with another request
│   ├── FilesQuotaExceeded 413        the tenant or the key may keep no more files
│   ├── RangeNotSatisfiable 416       a content has none of the bytes that are asked for
│   ├── AnswerNotKept 409             answered already, and the answer is gone
│   ├── ReplayRunning 409             it is under way
│   ├── KeyNotChangeable 409          it stands in the configuration, or was revoked
│   │   └── KeyChanged                by somebody else, since it was read
│   └── NotFound 404
│       ├── ConversationNotFound      unknown, deleted or another tenant's (guarantee §2)
│       ├── FileNotFound              unknown, deleted, expired or another tenant's (guarantee §14.5)
│       ├── FilesNotKept              the upstream has none: sent again, it is kept here
│       ├── ItemNotFound
│       ├── TurnNotFound
│       ├── ReplayNotFound
│       ├── CompletionNotFound
│       ├── MemoryNotFound
│       ├── KeyNotFound
│       ├── ModelNotFound
│       └── NotRelayed                not for this key (guarantee §1)
├── Unauthorized 401
├── Forbidden 403                     not with this key
│   └── ModelNotAllowed 403           this key may not ask that model
├── RateLimitExceeded 429             more than a key, user, model or project may ask (guarantee §12.4)
├── BudgetExceeded 429                more than it may spend (guarantee §12.3)
├── IdentityProviderUnavailable 503   who signs tokens cannot be asked; keys count (guarantee §12.17)
├── LimitsUnavailable 503             nobody can tell what is left, and `limits.when_down` is `closed`
├── GuardUnavailable 503              it cannot be asked, and its `on_failure` is `closed`
├── StorageUnavailable 503
│   ├── StorageReadOnly 503           it refuses writes (guarantee §3.6)
│   └── ContentUnreadable 503         stored content does not decrypt with the keys (guarantee §12.11)
├── ShuttingDown 503                  no new requests after SIGTERM (guarantee §9)
├── Overloaded 503                    too many large requests at once
├── InternalError 500
└── UpstreamError 502
    ├── UpstreamUnreachable 502
    ├── UpstreamTimeout 504
    ├── UpstreamAuth 502              the operator's key was refused; body withheld (guarantee §7)
    ├── UpstreamInvalidResponse 502   not the JSON or SSE that was promised
    │   └── UpstreamAnswerTooLong     more bytes than are read
    ├── UpstreamInterrupted 502       the answer broke off
    └── UpstreamRefused               upstream's own status, Retry-After and body
        └── UpstreamOverflow 400      the provider says that the window is exceeded
"""

from gateway.core.errors.access import BudgetExceeded as BudgetExceeded
from gateway.core.errors.access import Forbidden as Forbidden
from gateway.core.errors.access import GuardUnavailable as GuardUnavailable
from gateway.core.errors.access import IdentityProviderUnavailable as IdentityProviderUnavailable
from gateway.core.errors.access import LimitsUnavailable as LimitsUnavailable
from gateway.core.errors.access import ModelNotAllowed as ModelNotAllowed
from gateway.core.errors.access import RateLimitExceeded as RateLimitExceeded
from gateway.core.errors.access import Unauthorized as Unauthorized
from gateway.core.errors.base import ContentUnreadable as ContentUnreadable
from gateway.core.errors.base import GatewayError as GatewayError
from gateway.core.errors.base import InternalError as InternalError
from gateway.core.errors.base import Overloaded as Overloaded
from gateway.core.errors.base import ShuttingDown as ShuttingDown
from gateway.core.errors.base import StorageReadOnly as StorageReadOnly
from gateway.core.errors.base import StorageUnavailable as StorageUnavailable
from gateway.core.errors.requests import REQUIRED as REQUIRED
from gateway.core.errors.requests import AnswerNotKept as AnswerNotKept
from gateway.core.errors.requests import CompletionNotFound as CompletionNotFound
from gateway.core.errors.requests import ContentRefused as ContentRefused
from gateway.core.errors.requests import ContextLengthExceeded as ContextLengthExceeded
from gateway.core.errors.requests import ConversationNotFound as ConversationNotFound
from gateway.core.errors.requests import FileNotFound as FileNotFound
from gateway.core.errors.requests import FilesNotKept as FilesNotKept
from gateway.core.errors.requests import FilesQuotaExceeded as FilesQuotaExceeded
from gateway.core.errors.requests import HeadersTooLarge as HeadersTooLarge
from gateway.core.errors.requests import IdempotencyKeyInUse as IdempotencyKeyInUse
from gateway.core.errors.requests import IdempotencyKeyMismatch as IdempotencyKeyMismatch
from gateway.core.errors.requests import InvalidHttp as InvalidHttp
from gateway.core.errors.requests import InvalidRequest as InvalidRequest
from gateway.core.errors.requests import ItemNotFound as ItemNotFound
from gateway.core.errors.requests import KeyChanged as KeyChanged
from gateway.core.errors.requests import KeyNotChangeable as KeyNotChangeable
from gateway.core.errors.requests import KeyNotFound as KeyNotFound
from gateway.core.errors.requests import MemoryNotFound as MemoryNotFound
from gateway.core.errors.requests import MethodNotAllowed as MethodNotAllowed
from gateway.core.errors.requests import ModelNotFound as ModelNotFound
from gateway.core.errors.requests import NotFound as NotFound
from gateway.core.errors.requests import NotRelayed as NotRelayed
from gateway.core.errors.requests import RangeNotSatisfiable as RangeNotSatisfiable
from gateway.core.errors.requests import ReplayNotFound as ReplayNotFound
from gateway.core.errors.requests import ReplayRunning as ReplayRunning
from gateway.core.errors.requests import RequestTimeout as RequestTimeout
from gateway.core.errors.requests import RequestTooLarge as RequestTooLarge
from gateway.core.errors.requests import TurnNotFound as TurnNotFound
from gateway.core.errors.requests import UnsupportedMediaType as UnsupportedMediaType
from gateway.core.errors.requests import invalid as invalid
from gateway.core.errors.requests import missing as missing
from gateway.core.errors.requests import overflow_text as overflow_text
from gateway.core.errors.upstream import UpstreamAnswerTooLong as UpstreamAnswerTooLong
from gateway.core.errors.upstream import UpstreamAuth as UpstreamAuth
from gateway.core.errors.upstream import UpstreamError as UpstreamError
from gateway.core.errors.upstream import UpstreamInterrupted as UpstreamInterrupted
from gateway.core.errors.upstream import UpstreamInvalidResponse as UpstreamInvalidResponse
from gateway.core.errors.upstream import UpstreamOverflow as UpstreamOverflow
from gateway.core.errors.upstream import UpstreamRefused as UpstreamRefused
from gateway.core.errors.upstream import UpstreamTimeout as UpstreamTimeout
from gateway.core.errors.upstream import UpstreamUnreachable as UpstreamUnreachable
