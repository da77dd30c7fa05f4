"""The wording of what is forwarded: messages, labels, the block of reference material."""
