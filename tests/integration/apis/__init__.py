"""The APIs of whole gateways in memory, on each kind of storage."""
