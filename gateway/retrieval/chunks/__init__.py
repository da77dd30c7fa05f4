"""Cuts a text into chunks along its own structure (guarantee §5: `rag_extract`)."""
