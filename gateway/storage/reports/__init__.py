"""Read-only queries behind the web UI, commands and `/v1/organization/*`."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.storage.reports import found_requests, request_list, storage_health
    from gateway.storage.reports.costs import CostReports, SumDifference, compare_sums
    from gateway.storage.reports.storage_health import StorageHealth
else:
    __getattr__ = lazy_face(__name__)
