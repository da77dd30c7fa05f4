"""The canonical form: a request and its answer in the format of chat completions, whichever API was used (ADR 27).
Requests are read, checked, recognised, answered here; each API's package translates to it, and none knows another."""
