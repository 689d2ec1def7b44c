"""Self-contained HTML report of a finished run: page, style, scripts and data in one file."""

import base64
import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

from services.aggregator.index.database import Database, open_database
from services.aggregator.report.contents import Bounds, load_index, report_data
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.finished_run import FinishedRun

_DEFAULT_BOUNDS = Bounds()
_STATIC = Path(__file__).parent.parent / "page" / "static"
# Replaces the API client by a module that reads the data embedded in the page.
_API = Path(__file__).parent / "api.js"
_ICON = '<link rel="icon" href="static/icon.svg" type="image/svg+xml">\n'
_STYLE = '<link rel="stylesheet" href="static/style.css">\n'
_SCRIPT = '<script type="module" src="static/app.js"></script>\n'
_API_HINT = "; everything it shows is at api/runs."
_CHARSET = '<meta charset="utf-8">\n'
# Completions are untrusted text: only the script with this hash may run.
_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; "
    "form-action 'none'"
)
# The import and export forms that ``bundle`` supports.
_IMPORT = re.compile(r'^import (?:\* as (\w+)|\{([\w,\s]+)\}) from "\./([\w.]+)\.js";\n', re.M)
_EXPORT = re.compile(r"^export ((?:async )?function|const) (\w+)", re.M)
_UNSUPPORTED = re.compile(r"^\s*(?:import|export)\b.*", re.M)


def write_report(
    run: FinishedRun,
    folder: OutputFolder,
    name: str,
    bounds: Bounds = _DEFAULT_BOUNDS,
    database: Database | None = None,
) -> list[str]:
    """Write the report of a finished run; the same run and version produce the same bytes.

    Args:
        run: The run.
        folder: Where the report is written.
        name: Its name there.
        bounds: Its size.
        database: An index that has all of the run. By default the run's files are read into a
            temporary one on the local disk, so memory holds little more than what is shown.

    Returns:
        Notes about data that the report omits, one line each.

    Raises:
        OutputError: The run cannot be read, or the page or the index cannot be written.
    """
    before, after = _frame()
    with nullcontext(database) if database else _temporary_index(run, name) as index:
        data, notes = report_data(run, index, bounds)
        with folder.replacing(name) as file:
            file.writelines((before, data, after))
    return notes


@contextmanager
def _temporary_index(run: FinishedRun, name: str) -> Iterator[Database]:
    """Read a run's folder into a temporary index, whose errors name the report."""
    try:
        database = open_database()
    except (OutputError, OSError) as error:
        raise OutputError(f"cannot write {name}: {error}") from None
    try:
        load_index(run, database)
        yield database
    except sqlite3.OperationalError as error:
        cause = f"{error} in {database.path.parent}; free space there, or choose another TMPDIR"
        raise OutputError(f"cannot write {name}: {cause}") from None
    finally:
        database.close()


@cache
def _frame() -> tuple[str, str]:
    """Return the HTML before and after the data."""
    modules = {path.stem: path for path in _STATIC.glob("*.js")} | {"api": _API}
    script = bundle({name: path.read_text("utf-8") for name, path in modules.items()}, "app")
    style = (_STATIC / "style.css").read_text("utf-8")
    policy = _POLICY.format(script=_hash(script), style=_hash(style))
    meta = f'{_CHARSET}<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    page = (_STATIC / "index.html").read_text("utf-8")
    for found, replacement in (
        (_CHARSET, meta),
        (_ICON, ""),
        (_STYLE, f"<style>{style}</style>\n"),
        (_SCRIPT, ""),
        (_API_HINT, "."),
    ):
        if page.count(found) != 1:
            raise ValueError(f"index.html must contain {found!r} once, for a report to replace")
        page = page.replace(found, replacement)
    before, after = page.split("</body>")
    opening = f'{before}<script type="application/json" id="data">'
    return opening, f'</script>\n<script type="module">{script}</script>\n</body>{after}'


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """Bundle ES modules into one script: each becomes a function that runs after its imports.

    Raises:
        ValueError: An import is missing, circular, or in an unsupported form.
    """
    done: list[str] = []
    parts: list[str] = []

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers or name not in modules:
            raise ValueError(f"{importers[-1:]} imports {name}.js, which is missing or imports it")
        if name in done:
            return
        for found in _IMPORT.finditer(modules[name]):
            add(found[3], (*importers, name))
        parts.append(_wrapped(name, modules[name]))
        done.append(name)

    add(entry, ())
    return "".join(parts)


def _wrapped(name: str, source: str) -> str:
    exported = [found[2] for found in _EXPORT.finditer(source)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_constant, source))
    if left := _UNSUPPORTED.search(body):
        raise ValueError(f"{name}.js: {left[0].strip()!r} cannot be bundled into a report")
    if "</" in body:
        raise ValueError(f"{name}.js: '</' could end the script element that holds it")
    return f"const {name}_js = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _constant(found: re.Match[str]) -> str:
    names = found[1] or f"{{ {found[2].strip()} }}"
    return f"const {names} = {found[3]}_js;\n"
