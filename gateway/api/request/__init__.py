"""The inner form: a request and its answer in the form of chat completions, whichever API it came by (ADR 27). Requests
are read, checked, recognised and answered here; each API's own package translates to it, and none knows another."""
