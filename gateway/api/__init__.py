"""The edge: who asks, what is asked, how answers travel. Pure ASGI: streams and cancellation stay intact."""
