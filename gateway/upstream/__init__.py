"""Where models are served, and the calls to them. The only home of the HTTP client and of litellm.

Read first: `routing/router.py` (who is asked) and `openai/answers.py` (how). One adapter for each protocol. Never
changes what is asked but for the protocol's sake, and never retries by itself: the pipeline does.
"""

import sys

# httpx's own command, which it does without: it would bring rich and pygments to each start.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
