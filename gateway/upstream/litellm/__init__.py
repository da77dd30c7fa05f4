"""Providers spoken to through litellm, imported at first use."""
