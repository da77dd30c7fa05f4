"""The edge: who asks, what is asked, how answers travel. One folder for each API, and one canonical request.

Read first: `completion_handler.py` (the way of any request that asks a model) and `request/validation.py` (what is
refused, with the field's name). Never decides what a model is sent: that is the pipeline's. Pure ASGI, so that streams
and cancellation stay intact.
"""
