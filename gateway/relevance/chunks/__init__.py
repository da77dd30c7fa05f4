"""Cuts a text into chunks along its own structure (contract §5: `rag_extract`)."""
