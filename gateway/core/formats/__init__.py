"""Wire formats: translations between an API's wire form and the inner form (ADR 27). Pure: nothing here does I/O."""
