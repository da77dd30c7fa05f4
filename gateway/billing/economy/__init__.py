"""When a pass pays: what carrying old tool results and what rewriting a prompt costs (guarantee §4 I7)."""
