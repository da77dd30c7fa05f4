"""Messages, as Anthropic has them."""
