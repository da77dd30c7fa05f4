"""What a request cost, what it may cost, and what it saved (guarantee §6).

Read first: `cost.py` (the one place where a price becomes a cost) and `metadata.py` (the bill as it is reported). A
`Quota` checks budgets and limits; `passes.py` decides which old tool results to drop, and when that pays. Never rounds
money through a float.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.billing import cost, ledger_verification, metadata, meter, passes, prompt_cache, relayed_usage
    from gateway.billing.quota import budgets
    from gateway.billing.quota.gate import AdmissionRequest, AdmittedRequest, Quota
else:
    __getattr__ = lazy_face(__name__)
