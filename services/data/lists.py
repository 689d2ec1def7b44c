"""Lists beside the data, as JSON lines: what was dropped, doubled or found."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shared.files import write_text
from shared.json_lines import read_json_lines
from shared.reading import data_error


def write_list(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Write a list in one step, also an empty one.

    Raises:
        DataError: It cannot be written.
    """
    lines = [json.dumps(entry, ensure_ascii=True) for entry in entries]
    replace_text(path, "".join(f"{line}\n" for line in lines))


def replace_text(path: Path, text: str) -> None:
    """Write a file in one step; folders are made as needed.

    Raises:
        DataError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise data_error(str(path), f"cannot be written ({error}); check the folder") from None


def read_list(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list.

    Raises:
        DataError: It cannot be read.
    """
    for _, entry in read_json_lines(str(path)):
        yield entry
