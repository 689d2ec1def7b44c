"""Self-contained HTML report of a finished run: page, style, scripts and data in one file.

The data are JSON, which replaces the API for the scripts of the page:
``{"run", "performance", "notes", "columns", "samples"}``. Run and performance are responses of the
API. A sample has the values of ``columns``, and the API's response with its texts, or null.
"""

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from services.aggregator.folders import add_run, load_samples, run_facts
from services.aggregator.index.database import Database, open_database
from services.aggregator.index.overview import IndexedRun, all_figures, find_run
from services.aggregator.index.performance import performance
from services.aggregator.index.rows import SampleRow, read_rows
from services.aggregator.index.writer import IndexWriter, public_json
from services.aggregator.run_answers import RunDetail, SampleDetail
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.schemas import SampleId, describe, without_surrogates

# Size of a report: about 25 MB in all, which a browser opens in a second or two. It lists so many
# samples, of some of them texts of so many bytes in all, and of each text so many characters.
ROWS, TEXT_BYTES, CHARACTERS = 20_000, 16 * 2**20, 20_000
# Samples whose texts have their syntax marked, which takes milliseconds for each.
HIGHLIGHTED = 40
_STATIC = Path(__file__).parent / "page" / "static"
# Replaces the API client by a module that reads the data embedded in the page.
_API = Path(__file__).parent / "page" / "report.js"
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
    run: FinishedRun, folder: OutputFolder, name: str, database: Database | None = None
) -> list[str]:
    """Write the report of a finished run; the same run and version produce the same bytes.

    Args:
        run: The run.
        folder: Where the report is written.
        name: Its name there.
        database: An index that has all of the run. By default the run's files are read into a
            temporary one on the local disk, so memory holds little more than what is shown.

    Returns:
        Notes about data that the report omits, one line each.

    Raises:
        OutputError: The run cannot be read, or the page or the index cannot be written.
    """
    before, after = _frame()
    with nullcontext(database) if database else _temporary_index(run, name) as index:
        data, notes = report_data(run, index)
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
    for part, replacement in (
        (_CHARSET, meta),
        (_ICON, ""),
        (_STYLE, f"<style>{style}</style>\n"),
        (_SCRIPT, ""),
        (_API_HINT, "."),
    ):
        if page.count(part) != 1:
            raise ValueError(f"index.html must contain {part!r} once, for a report to replace")
        page = page.replace(part, replacement)
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
        for imported in _IMPORT.finditer(modules[name]):
            add(imported[3], (*importers, name))
        parts.append(_wrapped(name, modules[name]))
        done.append(name)

    add(entry, ())
    return "".join(parts)


def _wrapped(name: str, source: str) -> str:
    exported = [match[2] for match in _EXPORT.finditer(source)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_constant, source))
    if left := _UNSUPPORTED.search(body):
        raise ValueError(f"{name}.js: {left[0].strip()!r} cannot be bundled into a report")
    if "</" in body:
        raise ValueError(f"{name}.js: '</' could end the script element that holds it")
    return f"const {name}_js = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _constant(match: re.Match[str]) -> str:
    names = match[1] or f"{{ {match[2].strip()} }}"
    return f"const {names} = {match[3]}_js;\n"


# Data


_NOT_LISTED = {"completion_sha256", "confirmed", "replica", "worker", "finished_at", "stderr"}
COLUMNS = tuple(name for name in SampleRow.model_fields if name not in _NOT_LISTED)
# Round robin over data sets and statuses, so that all samples of rare statuses are shown. Within
# them the order is random, but the same each time: that of the completions' hashes.
_ROUND_ROBIN = """samples WHERE run_id = ? ORDER BY row_number() OVER (
  PARTITION BY dataset, final_status ORDER BY completion_sha256, problem_id, sample_index
), dataset, final_status LIMIT ?
"""
# Fields of a verdict that the page does not show; there may be thousands of case codes.
_NOT_SHOWN = ("case_codes", "worker", "code")
_ESCAPED = "<>&\u2028\u2029"


def report_data(run: FinishedRun, database: Database) -> tuple[str, list[str]]:
    """Choose the samples to show from an index that has all of the run's.

    Returns:
        The JSON, and notes for the reader about data that it omits.

    Raises:
        OutputError: A file of the run is invalid.
    """
    facts = run_facts(run, run.strict)
    results = facts.pop("results", {})
    with database.read() as connection:
        indexed = find_run(connection, run.record.run)
        assert indexed is not None
        indexed = replace(indexed, state=run.record.state, stored_facts=public_json(facts))
        rows = read_rows(connection, _ROUND_ROBIN, (indexed.id, ROWS))
        details = _details(connection, indexed, rows)
        notes = _notes(connection, run, indexed, len(rows), len(details))
        try:
            figures = all_figures(connection, indexed)
            detail = RunDetail.of(connection, indexed, figures, json.loads(public_json(results)))
        except ValidationError as error:
            raise OutputError(f"{run.folder.url}: {describe(error)}") from None
        document = {
            "run": to_jsonable_python(detail),
            "performance": to_jsonable_python(performance(connection, indexed)),
            "notes": notes,
            "columns": COLUMNS,
        }
    rows.sort(key=_sample)
    samples = ",".join(
        f"{compact([getattr(row, column) for column in COLUMNS])[:-1]},"
        f"{details.get(_sample(row), 'null')}]"
        for row in rows
    )
    return f'{compact(document)[:-1]},"samples":[{samples}]}}', notes


def _sample(row: SampleRow) -> SampleId:
    return SampleId(row.dataset, row.problem_id, row.sample_index)


def _details(
    connection: sqlite3.Connection, run: IndexedRun, rows: list[SampleRow]
) -> dict[SampleId, str]:
    """The JSON of the first samples that fit, with their texts."""
    details: dict[SampleId, str] = {}
    left = TEXT_BYTES
    for row in rows:
        detail = SampleDetail.of(
            connection,
            run,
            _sample(row),
            most=CHARACTERS,
            highlighted=len(details) < HIGHLIGHTED,
            answers=False,  # they are among the listed samples
        )
        document = to_jsonable_python(detail)
        for name in _NOT_SHOWN:
            del document["verdict"][name]
        text = compact(document)
        left -= len(text.encode())
        if left < 0:
            break
        details[_sample(row)] = text
    return details


def _notes(
    connection: sqlite3.Connection,
    run: FinishedRun,
    indexed: IndexedRun,
    listed: int,
    with_texts: int,
) -> list[str]:
    notes, samples = [], indexed.verdicts
    if listed < samples:
        notes.append(f"{listed} of {samples} samples are listed; the figures cover all of them.")
    if with_texts < samples:
        notes.append(
            f"Prompt, completion and failed case are included for {with_texts} samples, taken in "
            "turn from each data set and status; generations.jsonl and verdicts.jsonl have all."
        )
    outlines = "SELECT count(*) FROM problems WHERE run_id = ?"
    if samples and not connection.execute(outlines, (indexed.id,)).fetchone()[0]:
        notes.append(
            "The run's folder has no problems.jsonl, so prompts, difficulty and tags are missing."
        )
    if with_texts > HIGHLIGHTED:
        notes.append(f"Syntax is highlighted for {HIGHLIGHTED} samples.")
    return [*notes, *(f"Left out: {line}" for line in dict.fromkeys(run.skipped))]


def compact(value: object) -> str:
    """Encode JSON that is safe in a script element: no ``<``, ``>``, ``&`` or line separators."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise OutputError(f"the report cannot be written: {error}") from None
    text = without_surrogates(text)
    for sign in _ESCAPED:  # str.translate would take a sixth of a report's time
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def load_index(run: FinishedRun, database: Database) -> str:
    """Load a run from its folder into the index; return the run's id.

    Raises:
        OutputError: A line, other than a torn last one, is invalid.
    """
    name, writer = run.record.run, IndexWriter(database, searched=False)
    load_samples(run, writer, add_run(run, writer, name, run.strict), run.strict)
    return name
