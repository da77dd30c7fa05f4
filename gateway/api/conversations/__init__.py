"""The Conversations API, and stored completions."""
