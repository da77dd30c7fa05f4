"""Documents of all kinds: what they say, and the files that clients upload.

Read first: `document.py` (what a reading is) and `process.py` (the confined process that readers run in). Never runs a
reader on hostile bytes in the server's own process, and knows nothing of budgets.
"""
