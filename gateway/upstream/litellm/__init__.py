"""Providers called through litellm, imported at first use."""
