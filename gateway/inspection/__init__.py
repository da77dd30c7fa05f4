"""What the gateway did: a conversation turn by turn, a request message by message, a bill sum by sum.

Read first: `reader.py` (what is read of the storage) and `window_bar.py` (what stood in a window, and why). All else is
pure, and gives data for pages, commands and APIs. Never asks a model, and makes nothing up: what is not stored is said
with its reason.
"""
