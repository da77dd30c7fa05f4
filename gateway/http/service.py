"""`/health/*` and `/v1/models`."""

from gateway.errors import ModelNotFound, StorageUnavailable
from gateway.http.auth import Authenticator
from gateway.http.edge import Draining, Receive, Scope, Send, send_json
from gateway.ports import ConversationStore, ModelDirectory


class Live:
    """The process answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, {"status": "ok"})


class Ready:
    """503 while the storage cannot be reached or is not on the current schema, and while shutting down
    (contract §9)."""

    def __init__(self, store: ConversationStore, draining: Draining) -> None:
        self._store = store
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            ready = await self._store.ready()
            reason = "storage_schema_not_current"
        except StorageUnavailable:
            ready, reason = False, "storage_unavailable"
        if self._draining.begun:
            ready, reason = False, "shutting_down"
        if ready:
            await send_json(send, 200, {"status": "ok"})
        else:
            await send_json(send, 503, {"status": "unavailable", "reason": reason})


class Models:
    """The configured models; without any, those of the default upstream."""

    def __init__(self, directory: ModelDirectory, auth: Authenticator) -> None:
        self._directory = directory
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        models = await self._directory.models(caller)
        wanted = scope["path_params"].get("model")
        if wanted is None:
            await send_json(send, 200, {"object": "list", "data": models})
            return
        for model in models:
            if model.get("id") == wanted:
                await send_json(send, 200, model)
                return
        raise ModelNotFound(f"The model {wanted!r} does not exist here.", param="model")
