"""The browser: where it is, how it is started, and how `make browser` gets it (`python -m tests.browser.chromium`)."""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""It asks nobody but the page that a test opens."""
INSTALL = (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", "chromium"])
NONE = "no Chromium on this machine: the page is not tested in a browser (Debian's package is `chromium`)"


def executable() -> str | None:
    """The path of the browser; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def launch(playwright: "Playwright", path: str) -> "Browser":
    """A browser with a new profile."""
    return playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)


def main() -> int:
    """Installs it where it is missing and this user may; always 0, since tests are skipped without it."""
    if executable() is not None:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(NONE)
        return 0
    print("installing Chromium (Debian's package, once)")
    for command in INSTALL:
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode != 0:
            print(f"{' '.join(command)}: {done.stderr.strip()[-300:]}\n{NONE}")
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
