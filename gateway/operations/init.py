"""`gateway init`: writes a commented configuration, for users without a checkout of the repository."""

import shlex
from pathlib import Path
from typing import TextIO

import gateway


def template_file() -> Path:
    """Returns `config.yaml` of a checkout, or the copy inside an installed wheel."""
    package = Path(gateway.__file__).parent
    bundled = package / "_config.yaml"
    return bundled if bundled.is_file() else package.parent / "config.yaml"


def write_configuration(path: Path, out: TextIO, errors: TextIO) -> int:
    """Writes the template to a new file and prints the next steps; returns the exit status. Never overwrites an
    existing file: it may hold keys."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template_file().read_text(encoding="utf-8"))
    except FileExistsError:
        print(f"{path} is there already and stays as it is: name another file", file=errors)
        return 1
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}", file=errors)
        return 1
    shown = shlex.quote(str(path))
    print(f"wrote {path}: each line says what it does, and nothing in it has to be changed", file=out)
    print(f"next: gateway check --config {shown}   (is what it names there?)", file=out)
    print(f"      gateway serve --config {shown}", file=out)
    return 0
