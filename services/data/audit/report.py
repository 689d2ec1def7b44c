"""The audit report as Markdown and as one self-contained page."""

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from services.data.audit.model import Audit
from services.data.lists import replace_text
from services.data.overlap.pairs import Overlap

REPORT = "audit_report"
# What a reviewer reads; the lists beside the manifest have all of it.
SHOWN = 50


def write_report(folder: Path, audit: Audit) -> Path:
    """Write ``audit_report.md`` and ``audit_report.html``; the same audit gives the same bytes.

    Returns:
        Path of the Markdown.

    Raises:
        DataError: One cannot be written.
    """
    environment = _environment()
    for ending in ("html", "md"):
        text = environment.get_template(f"{REPORT}.{ending}.j2").render(audit=audit, shown=SHOWN)
        replace_text(folder / f"{REPORT}.{ending}", text)
    return folder / f"{REPORT}.md"


def describe_overlap(overlap: Overlap) -> str:
    """What was found of a pair, with its figures."""
    return ", ".join(f"{found.kind.value} {found.similarity:.2f}" for found in overlap.findings)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("services.data.audit"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": _cell,
        "code": _code,
        "described": describe_overlap,
        "digits": lambda number: f"{number:,}",
    }
    return environment


def _cell(value: object) -> str:
    """Text of data in a Markdown table: it can neither end the cell nor begin markup."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*\[\]<>|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _code(value: object) -> str:
    """Text of data as Markdown's inline code, also within a table."""
    text = " ".join(str(value).split()).replace("|", "¦")
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {text} {fence}" if text else ""
