"""Wire formats: translations between what an API says and the inner form (ADR 27). Pure: nothing here does I/O."""
