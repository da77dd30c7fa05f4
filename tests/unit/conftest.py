"""Properties are tried on the same examples in every run; `FITTING_EXAMPLES=1000` tries more and other ones."""

import os

from hypothesis import settings

settings.register_profile("unit", derandomize="FITTING_EXAMPLES" not in os.environ, deadline=None, database=None)
settings.load_profile("unit")
