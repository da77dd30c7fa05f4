"""Step 6: where a model is served, and the calls to it. The only home of the HTTP client and of litellm's files."""
