"""The numbers by which a window is filled, in one table, each with what is known about it.

Recall is not sensitive to the shares of the budget: measured at budgets of 2,000 to 8,000 tokens on 350 requests with
known evidence (ADR 11), half or twice of each changes it by 0.3 points, none of `RULES_SHARE` by 0.6. What a question
recalls beside a frozen window was measured in conversations (ADR 12), what summaries take in ADR 23. All others are
chosen by hand. Counting the selection corrects a wrong estimate of tokens.
"""

# Guesses of tokens and characters
TOKEN_CHARS = 4.5  # characters of an average token of o200k_base in English prose
MAX_CHARS_PER_TOKEN = 6  # above the average of any ordinary text
ITEM_LABEL_TOKENS = 55  # the label of an item in the block (id, type, source, title, what is shown)
BLOCK_TAG_TOKENS = 35  # the block's own tags and note
LINE_TOKENS = 7  # turn and speaker before an excerpt
ELISION_TOKENS = 3  # the mark where something was left out, with its line end
EXTRACT_TOKENS = 15  # the label of an extract, beyond that of an artifact of which nothing is shown
SUMMARY_LABEL_TOKENS = 20  # the label of a summary, beyond that of an extract and without its focus
SEGMENT_TOKENS, MEMORY_TOKENS = 40, 35  # around a summary of old turns, and around all of them
LABEL_CHARS = ITEM_LABEL_TOKENS * TOKEN_CHARS  # an artifact that a plan shortens by no more stays as it is
POINTER_CHARS = 8 * ITEM_LABEL_TOKENS  # a longer artifact surely has more tokens than its label
MARK_CHARS = 10  # one mark of an omission, as an upper bound
MAX_LABEL_CHARS = 4000  # characters left out above which a label and marks surely save tokens
HUGE_CHARS = 1_000_000  # checked before it is put into a message: each message is a copy of it

# The minimum, as shares of the goal
OLD_SHARE = 0.15  # must be left for old content, if only old content is reduced (guarantee §4 I5)
KEPT_IN_GOAL = 0.5  # of the space below the goal, for whole results that are being edited or were just read
KEPT_SHARE = 0.5  # of the budget: what these results may take beyond the goal if savings pay for it
LATEST_SHARE = 0.4  # results of the latest tool step, which the model has not seen yet; of the space above, too
TASK_SHARE = 0.3  # documents in the first and the latest user message of a tool loop: instructions are often as long
BEFORE_SHARE = 0.5  # unanswered messages directly before, without a tool step: people may talk long before they ask
FREE_SHARE = 0.25  # of the space beside what cannot leave, also above the low-water mark: else earlier steps vanish
MAX_NAMED_DOCUMENTS = 20  # attached documents that are named in the block although nothing of them is shown

# Lanes, as shares of the budget above the minimum (ADR 11)
BEST_PASSAGES, BEST_SHARE = 3, 0.3  # that are taken before any turn
RULES_SHARE = 0.08  # the user's standing instructions, and the beginning of the conversation
MAX_TURNS_SHARE = 0.9  # old turns as messages, if nearly everything fits
GROWS_FROM = 0.6  # of everything: if a larger part fits, the turns' share grows with that part
ROOMY_TOKENS = 1000  # budget in which the tokens of labels hardly matter
SEGMENTS_SHARE, SEGMENTS_FIRST_SHARE = 0.1, 0.2  # summaries of old turns; with `context.memory: summary` (ADR 23)
MIN_SEGMENTS_PART = 0.5  # of that, if the question seems to need all else: a vague one matches half of everything
MIN_NEEDED_SCORE = 0.4  # of the best: needed before summaries, and of old artifacts while current ones are reduced
OLD_PART = 0.5  # of an old artifact, while current ones are reduced; its best passage may be shown in any case

# Filling and correcting
FULL_SHARE = 0.99  # of the goal: from there on a window counts as filled
MIN_ROOM = 12  # tokens: with less left no passage is tried, since less than a sentence would fit
MAX_PASSAGE_MISSES = 48  # passages in a row that prove too long: counting more costs more than the rest is worth
MAX_PARTS = 8  # passages of which a part is tried when all of them are too long
MIN_PART = 40  # characters: a shorter part of a passage is not worth showing; no word is longer
MAX_CORRECTIONS = 8  # counts of a selection whose tokens were guessed wrongly; more than three are rare
MAX_RECOUNTS = 4  # counts of what is recalled beside a frozen window

# What a question recalls beside a frozen window (ADR 12)
RECALL_ROOM_SHARE = 0.75  # of the free budget; the rest is for later turns
RECALL_SHARE = 0.05  # of the budget, at most
ECONOMY_RECALL_TOKENS = 500  # at most, if what is recalled reduces what clearing saves
RECALL_TOKENS = 200  # in any case, as far as they fit: a paragraph, in budgets below 4,000 tokens
MIN_RECALL_SHARE = 0.015  # of the budget: with less left nothing useful can be recalled, so that something leaves
BEST_FACTOR = 2  # the one best passage may take this many times what may be recalled
BEST_OF_PASS_SHARE = 0.5  # of what a pass fills: a pass is worth it for a best passage up to that size, if else cut
MIN_RECALL_SCORE = 0.4  # of the best
REPEATED_CHARS = 80  # in a row that are a repetition, not a coincidence

# A planner's plan (guarantee §5)
HEURISTIC_SHARE = 0.5  # of the budget for artifacts: filled in the heuristic's order before the plan's
MIN_QUERY_SCORE = 0.5  # of the best, for an extraction query
RANK_DAMPING = 6  # of reciprocal rank fusion: lists here have tens of passages, so that it is less than the usual 60
OWN_RANK_WEIGHT = 0.3  # of a passage's rank in its own artifact; its rank among all artifacts has the weight 1
