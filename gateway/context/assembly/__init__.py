"""The wording of what is forwarded: labels, the block of reference material, the request body."""
