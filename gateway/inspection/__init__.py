"""Explains what the gateway did: a conversation turn by turn, a request message by message, a bill sum by sum.

`reader` reads what is stored; all else is pure, and gives data for pages and commands. What is not stored is said with
its reason, never made up.
"""
