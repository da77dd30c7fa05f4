"""Wire formats: translates between each API's wire format and the canonical form (ADR 27). Pure: does no I/O."""
