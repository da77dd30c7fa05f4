"""An agent's session of ten turns: how much of each prompt a provider's cache has, tokens and cost."""
