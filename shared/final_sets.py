"""Ledger of final sets: which models and protocols were measured on a set that is not tuned on.

In ``final_sets/`` of an output folder lies a file for each run and final set
(``data.final_sets``); the ledger of a run consists of those in its folder and in the folders beside
it. The name is made of run, fingerprint, model and data. So writers need no lock, a run that is
resumed or published again has one file, and ``--force`` removes none.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from shared.artifacts import OutputFolder
from shared.config_differences import protocol_on
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.protocol import shown
from shared.run_record import RunRecord

FOLDER = "final_sets"
ValueT = TypeVar("ValueT")
_PROMPTS = "SHA-256 of the prompt template"
_SHOWN_LEAVES, _SHOWN_VALUES, _SHOWN_LENGTH = 2, 4, 24
# A reference run and a candidate are compared on a final set; to choose among more is to tune.
_MODELS_COMPARED = 2


class FinalSetRun(BaseModel):
    """A run on a final set. ``protocol`` has the protocol's leaves in effect for the set by path.

    ``sha256`` is that of the problems: runs on other problems under the same name are another set.
    ``prompts`` are the SHA-256 of the prompt templates; of recorded answers neither they nor the
    model need be known.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    dataset: str
    sha256: str
    problems: int
    run: str
    name: str
    output: str
    fingerprint: str
    model: str | None
    finished_at: float | None
    protocol: dict[str, JsonValue]
    prompts: list[str] | None = None

    @property
    def file(self) -> str:
        """Name of the entry's file below the folder of the ledger."""
        parts = [self.dataset, self.sha256, self.run, self.fingerprint, self.model]
        return f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.json"


@dataclass(frozen=True, slots=True)
class FinalSetUse:
    """The runs on a final set that are known.

    ``protocols`` and ``models`` are numbers of different ones. ``differing`` has the protocol's
    leaves that were tried with several values, and these.
    """

    dataset: str
    runs: int
    protocols: int
    models: int
    differing: dict[str, list[JsonValue]]

    @property
    def tuned(self) -> bool:
        """Whether several protocols were tried, or more models than a comparison of two has."""
        return self.protocols > 1 or self.models > _MODELS_COMPARED

    def describe(self) -> str:
        """A phrase: how many runs tried how many protocols, and which, with how many models."""
        tried = ""
        if names := list(self.differing)[:_SHOWN_LEAVES]:
            hidden = len(self.differing) - len(names)
            more = f"; and {hidden} more keys" if hidden else ""
            listed = "; ".join(f"{name} {_listed(self.differing[name])}" for name in names)
            tried = f" ({listed}{more})"
        return (
            f"{_count(self.runs, 'run')} tried {_count(self.protocols, 'protocol')}{tried} with "
            f"{_count(self.models, 'model')}"
        )


def entries_of(record: RunRecord) -> list[FinalSetRun]:
    """The entries of one run, one for each of its final sets."""
    return [
        FinalSetRun(
            dataset=one.dataset,
            sha256=one.sha256,
            problems=one.problems,
            run=record.run,
            name=record.name,
            output=record.output,
            fingerprint=record.fingerprint,
            model=record.served_model,
            finished_at=record.finished_at,
            protocol=protocol_on(record.config, one.dataset),
            prompts=_prompts(record, one.dataset),
        )
        for one in record.datasets
        if one.dataset in record.config.data.final_sets
    ]


def _prompts(record: RunRecord, dataset: str) -> list[str] | None:
    """The hashes of a data set's templates: one, or one per kind of test, ``name (kind)``."""
    found = [
        prompt.sha256
        for name, prompt in sorted((record.prompts or {}).items())
        if name == dataset or name.startswith(f"{dataset} (")
    ]
    return found or None


def record_run(folder: OutputFolder, entries: Iterable[FinalSetRun]) -> None:
    """Write the entries that an output folder does not have yet.

    Raises:
        OutputError: The folder cannot be written.
    """
    for entry in entries:
        name = f"{FOLDER}/{entry.file}"
        if not folder.exists(name):
            folder.write_json(name, entry.model_dump(mode="json"))


def read_ledger(output: str) -> tuple[list[FinalSetRun], list[str]]:
    """Read the ledger of a run's output folder, a local path or any fsspec URL.

    Returns its entries, and notes on what cannot be read.
    """
    entries: list[FinalSetRun] = []
    notes: list[str] = []
    own = OutputFolder(output)
    place, _, name = (own.path if own.local else own.url.rstrip("/")).rpartition("/")
    names = {name}
    if not place.endswith("/"):  # nothing is beside a bucket
        try:
            names |= set(OutputFolder(place or "/").names(""))
        except OutputError as error:
            notes.append(str(error))
    for name in sorted(names):
        _read(OutputFolder(f"{place}/{name}"), entries, notes)
    return entries, notes


def uses(entries: Iterable[FinalSetRun], of: Sequence[FinalSetRun]) -> list[FinalSetUse]:
    """Count the runs on the sets of some runs.

    Args:
        entries: A ledger; entries may occur twice.
        of: The entries of the runs in question, which count as well.
    """
    known = {one.file: one for one in (*entries, *of)}.values()
    sets = dict.fromkeys((one.dataset, one.sha256) for one in of)
    return [_use([one for one in known if (one.dataset, one.sha256) == name]) for name in sets]


def final_set_uses(runs: Sequence[FinishedRun]) -> tuple[list[FinalSetUse], list[str]]:
    """Count the runs on the final sets of some runs, in the ledgers beside them; with notes."""
    own = [entry for run in runs for entry in entries_of(run.record)]
    ledgers = [read_ledger(run.folder.url) for run in runs] if own else []
    entries = [entry for found, _ in ledgers for entry in found]
    return uses(entries, own), list(dict.fromkeys(note for _, notes in ledgers for note in notes))


def advice(found: Iterable[FinalSetUse], others: Iterable[str]) -> list[str]:
    """Say of which final sets a choice was made on them, and where to make it; one line for each.

    Args:
        found: The runs on each set; sets with the same ones share a line.
        others: Data sets of the runs in question that are not final.
    """
    where = " or ".join(others) or "a set that is not final"
    names: dict[str, list[str]] = {}
    for use in found:
        if use.tuned:
            names.setdefault(use.describe(), []).append(use.dataset)
    return [
        f"{' and '.join(sets)} {'is' if len(sets) == 1 else 'are'} marked final, but {tried} on "
        f"{'it' if len(sets) == 1 else 'each'}: choose on {where}"
        for tried, sets in names.items()
    ]


def _read(folder: OutputFolder, entries: list[FinalSetRun], notes: list[str]) -> None:
    try:
        names = folder.names(FOLDER)
    except OutputError:
        return  # a neighbour that is not for this user, such as of /tmp
    for name in names:
        if not name.endswith(".json"):
            continue
        try:
            entries.append(FinalSetRun.model_validate(folder.read_json(f"{FOLDER}/{name}")))
        except (OutputError, ValidationError):
            notes.append(f"{folder.shown}/{FOLDER}/{name} is not an entry of the ledger; left out")


def _use(runs: Sequence[FinalSetRun]) -> FinalSetUse:
    prompts: dict[str, set[str]] = {}  # known ones by protocol
    for one in runs:
        known = prompts.setdefault(json.dumps(one.protocol, sort_keys=True), set())
        known.update([json.dumps(one.prompts)] if one.prompts else [])
    paths = dict.fromkeys(path for one in runs for path in one.protocol)
    tried = {path: _different([one.protocol.get(path) for one in runs]) for path in paths}
    tried[_PROMPTS] = _different([one.prompts[0] for one in runs if one.prompts])
    return FinalSetUse(
        dataset=runs[0].dataset,
        runs=len(runs),
        protocols=sum(max(1, len(known)) for known in prompts.values()),
        models=max(1, len({one.model for one in runs if one.model})),
        differing={path: found for path, found in tried.items() if len(found) > 1},
    )


def _different(found: Sequence[ValueT]) -> list[ValueT]:
    """Values without repetition, in order; they may be lists and objects of JSON."""
    return list({json.dumps(value, sort_keys=True): value for value in found}.values())


def _listed(found: Sequence[JsonValue]) -> str:
    texts = [shown(value, _SHOWN_LENGTH) for value in found[:_SHOWN_VALUES]]
    return ", ".join(texts) + (", …" if len(found) > _SHOWN_VALUES else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
