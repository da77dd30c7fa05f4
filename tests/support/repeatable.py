"""Examples that are the same wherever a test runs.

Hypothesis strews in constants that it finds in those of the project's modules that its process happens to have
imported, also where `derandomize` is set: another worker, or another order of the tests, makes other examples.
"""

from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants


def leave_out_local_constants() -> None:
    """From now on no test of this process is given any; Hypothesis has no setting for it.

    What it strews in by itself (limits, odd texts) stays.
    """
    assert hasattr(HypothesisProvider, "_local_constants"), "Hypothesis keeps its local constants elsewhere"
    HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]
    providers.CONSTANTS_CACHE.cache.clear()
