"""Which passages of a conversation's texts bear on a question: the heuristic's ranks (guarantee §5). Pure but for
`index_cache`."""
