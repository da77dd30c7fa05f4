"""litellm, loaded at its first use and kept quiet: it fetches no prices, lists or URLs, logs and reports nothing."""

import asyncio
import importlib
import logging
import os
import sys
import warnings
from typing import Any, NoReturn

from gateway.core.errors import InvalidRequest
from gateway.core.instrumentation.logs import get_logger

log = get_logger("gateway.upstream.litellm")
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads a `.env` file into the environment
    "LITELLM_LOG": "ERROR",
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "botocore", "boto3", "openai")
HANDLERS = ("success_handler", "failure_handler", "handle_sync_success_callbacks_for_async_calls")
ASYNC_HANDLERS = (
    *("async_success_handler", "async_failure_handler"),
    *("dispatch_success_handlers", "dispatch_failure_handlers"),
)
SCHEDULER = "_schedule_async_success_logging"
READ_ONLY = r"Items? '.*' on TypedDict class '\w+' (is|are) using the `ReadOnly` qualifier"
"""What pydantic says of litellm's types when it first sees them."""
NO_FETCH = "This provider takes pictures and files only within the request; nothing is fetched from a URL."


class LitellmLibrary:
    """The package; importing it takes seconds, so that is done once, in a thread, while other requests go on."""

    def __init__(self, *, modify_params: bool = False) -> None:
        self._modify_params = modify_params
        self._loading: asyncio.Task[Any] | None = None
        self._module: Any = None

    async def get(self) -> Any:
        """The `litellm` module. A caller that leaves does not stop the others' loading; what could not be loaded is
        tried again by the next."""
        if self._module is not None:
            return self._module
        if self._loading is None or self._loading.done():
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        self._module = await asyncio.shield(self._loading)
        return self._module

    def _load(self) -> Any:
        for name, value in OFFLINE.items():
            os.environ[name] = value  # litellm reads these while it is imported
        litellm: Any = importlib.import_module("litellm")
        importlib.import_module("litellm.main")
        litellm.suppress_debug_info = True
        litellm.disable_hf_tokenizer_download = True
        litellm.modify_params = self._modify_params
        litellm.drop_params = False
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", READ_ONLY, UserWarning)
        _silence()
        _forbid_fetching()
        log.info("litellm_loaded")
        return litellm


def _silence() -> None:
    """Its accounting of calls runs in threads and tasks of its own for callbacks that nobody has registered."""
    logged = importlib.import_module("litellm.litellm_core_utils.litellm_logging").Logging
    for name in HANDLERS:
        setattr(logged, name, _nothing)
    for name in ASYNC_HANDLERS:
        setattr(logged, name, _nothing_async)
    setattr(importlib.import_module("litellm.utils"), SCHEDULER, _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    return


async def _nothing_async(*_: Any, **__: Any) -> None:
    return


def _forbid_fetching() -> None:
    """No URL found in a request is ever fetched (guarantee §2): litellm would do so for providers that take no URLs."""
    replaced = {"safe_get": _refuse, "async_safe_get": _refuse_async}
    importlib.import_module("litellm.litellm_core_utils.prompt_templates.factory")
    for module in [m for name, m in sys.modules.copy().items() if name.startswith("litellm.")]:
        for name, refusal in replaced.items():
            if name in vars(module):
                setattr(module, name, refusal)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvalidRequest(NO_FETCH, param="messages", code="unsupported_url")


async def _refuse_async(*_: Any, **__: Any) -> NoReturn:
    _refuse()
