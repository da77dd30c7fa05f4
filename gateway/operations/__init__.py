"""What an operator runs: check, audit, purge, transfer."""
