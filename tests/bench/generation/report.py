"""Results of a scenario: a table on standard output, and one JSON line per figure."""

import json
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("verl", "vllm", "torch", "ray")


class Report:
    """``out`` is appended to at once, so that what was measured outlives a time limit."""

    def __init__(self, scenario: str, out: Path | None, facts: dict[str, Any]) -> None:
        self._scenario = scenario
        self._out = out
        self.line("environment", **_environment(), **facts)

    def line(self, kind: str, **figures: Any) -> None:
        """Write one line."""
        text = json.dumps({"scenario": self._scenario, "kind": kind, **figures})
        if self._out is None:
            print(text, flush=True)
            return
        with self._out.open("a") as out:
            out.write(text + "\n")

    def table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; numbers are shown with three digits."""
        shown = [list(headers), *([_show(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in shown) for column in range(len(headers))]
        print(f"\n{title}")
        for row in shown:
            print(
                "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            )
        print()


def _show(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def _environment() -> dict[str, Any]:
    return {"gpu": _gpu(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpu() -> str | None:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
