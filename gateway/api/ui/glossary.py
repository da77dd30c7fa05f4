"""Words of the pages that are this product's own, with what they mean: shown on hover, and listed at `/ui/glossary`.
docs/glossary.md says the same of them."""

TERMS = {
    "agent": "Who answers a request in a conversation that several share.",
    "artifact": "A tool result or document that may enter a context.",
    "branch": "A path through a conversation's tree of messages. An edit or regeneration starts one.",
    "budget": "Tokens that a prompt may take.",
    "calibration": "Learning a model's margin from the usage that its upstream reports.",
    "direct bill": "What a client's own requests would have cost without the gateway, by the same prices and the same "
    "prompt cache.",
    "extract": "Passages of an artifact, in document order, instead of all of it.",
    "fallback": "The context made without a plan, or with one summary missing.",
    "internal model": "Planner, summarizer or embedder; never the primary model.",
    "margin": "Tokens of a model per token of the vocabulary used to count.",
    "net saving": "The direct bill less what was billed; a loss is below 0.",
    "plan": "A planner's decision: a strategy per artifact, and search queries.",
    "planner": "The cheap model that may plan a context.",
    "primary model": "The model that the client asked for.",
    "prompt cache": "What a provider keeps of the beginning of a prompt, and bills at a lower price when it comes "
    "again.",
    "recall": "Finding passages outside the window for a question.",
    "replay": "Past turns asked again, on a branch of their own.",
    "rolling summary": "Summaries of a conversation's oldest turns, made behind answers.",
    "session": "A client's own name of a conversation.",
    "strategy": "What becomes of an artifact: forwarded in full, as a summary, as an extract, or left out.",
    "tenant": "The owner of a key; of stored rows and cache entries.",
    "turn": "A user message and everything up to the final answer; also what users say amid its tool steps.",
    "unmetered": "Of a request: its direct bill is not known, so it is in no net saving.",
    "window": "What is forwarded: system messages, the memory message and an unbroken run of turns.",
}
