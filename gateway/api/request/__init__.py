"""The inner form: a request and its answer in the words of chat completions, whichever API it came by (ADR 27). It is
read, checked, known again and answered anew here; each API's own package translates to it, and none knows another."""
