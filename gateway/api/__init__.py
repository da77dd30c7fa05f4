"""The HTTP edge: authentication, validation, responses. Each API has its own folder; all share one canonical request.

Read first: `completion_handler.py` (the path of every request that calls a model) and `request/validation.py` (what is
rejected, with the field's name). Never decides what is sent to a model: the pipeline does. Pure ASGI, so that streams
and cancellation stay intact.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.api.auth import ANONYMOUS
    from gateway.api.conversations.import_check import parse_export
    from gateway.api.conversations.transfer_endpoints import as_imported
    from gateway.api.keys import serializer
    from gateway.api.request import validation
    from gateway.api.request.body_cache import BodyCache
    from gateway.api.request.validation import RequestArrival
    from gateway.api.server import protocol
    from gateway.api.server.asgi import App
    from gateway.api.server.middleware import ShutdownState
    from gateway.api.tokens import Issuer, load_jose
    from gateway.api.wiring import WiredApi
else:
    __getattr__ = lazy_face(__name__)
