"""What everything stands on: JSON, clocks, ids."""
