"""What is changed in other packages for the time of a test run, since they have no setting for it."""

import functools

from httpx._transports import default
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants


def read_certificates_once() -> None:
    """From now on all HTTP clients of this process that name no TLS context of their own share one.

    httpx reads the certificates anew for every client, which takes 30 ms of processor time; tests make thousands of
    clients, all for plain HTTP on this machine.
    """
    assert hasattr(default, "create_ssl_context"), "httpx makes its contexts elsewhere"
    default.create_ssl_context = functools.cache(default.create_ssl_context)


def leave_out_local_constants() -> None:
    """From now on Hypothesis makes the same examples wherever a test runs.

    Else it adds constants of those of the project's modules that its process happens to have imported, also where
    `derandomize` is set: another worker, or another order of the tests, makes other examples. Its own constants
    (limits, odd texts) stay.
    """
    assert hasattr(HypothesisProvider, "_local_constants"), "Hypothesis keeps its local constants elsewhere"
    HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]
    providers.CONSTANTS_CACHE.cache.clear()
