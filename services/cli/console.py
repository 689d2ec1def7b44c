"""Output on a terminal or into a file: texts of others without control characters, plain tables."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from typer import Option

from shared.errors import OutputError
from shared.files import write_text
from shared.redaction import redact

JsonFile = Annotated[Path | None, Option("--json", help="File for the results as JSON.")]

_ENDLESS = 10**9  # columns


def stdout_console() -> Console:
    """The console of standard output.

    A file or a pipe has no width: each text and each row of a table is one line there, so that what
    a program reads does not depend on the length of a name.
    """
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=_ENDLESS)


def printable(text: str) -> str:
    """Replace control characters, which text from data may have, for the terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def shown(text: str, style: str = "") -> Text:
    """Text without markup and secrets; control characters but line ends are replaced."""
    return Text("\n".join(map(printable, redact(text).split("\n"))), style)


def say(text: str, style: str = "", console: Console | None = None) -> None:
    """Print a text, which the terminal wraps, so that a command in it can be copied."""
    (console or stdout_console()).print(shown(text, style), soft_wrap=True)


def display(*blocks: RenderableType) -> None:
    """Print tables and texts one below the other; an empty text prints an empty line.

    In a pipe, rows of a table have no blanks at their end, which a narrow terminal would wrap.
    """
    console = stdout_console()
    for block in blocks:
        if console.is_terminal or not isinstance(block, Table):
            console.print(block)
        else:
            with console.capture() as capture:
                console.print(block)
            print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def plain_table(
    headings: Sequence[str], left: Sequence[str] | None = None, *, header: bool = True
) -> Table:
    """A table without lines between its cells.

    Args:
        headings: Those of the columns.
        left: The columns that are aligned left; None for all.
        header: Whether the headings are printed.
    """
    table = Table(box=None, pad_edge=False, show_header=header)
    for heading in headings:
        at_left = left is None or heading in left
        table.add_column(heading, justify="left" if at_left else "right", overflow="fold")
    return table


def write_json(path: Path | None, document: Mapping[str, object]) -> None:
    """Write results as JSON, unless no file is named.

    Raises:
        OutputError: The file cannot be written.
    """
    if path is None:
        return
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        write_text(path, text + "\n")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that exists"
        ) from None
