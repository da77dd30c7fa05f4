"""Step 4: budget and window. What is forwarded fits, is contiguous, and keeps tool pairs whole (guarantee §4)."""
