"""One part of a corpus, checked in whatever process has time for it."""

from collections import Counter
from dataclasses import dataclass

from services.data.contamination.files import Format, Part
from services.data.contamination.index import Index
from services.data.contamination.lines import RowCounter, RowError, read_lines
from services.data.contamination.passages import read_passages
from services.data.contamination.tables import read_rows
from services.data.contamination.tally import Tally, tally_documents

_READERS = {Format.JSONL: read_lines, Format.PARQUET: read_rows, Format.TEXT: read_passages}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row of the part cannot be used."""

    row: int
    cause: str


@dataclass(frozen=True, slots=True)
class Scanned:
    """``rows`` is the number of rows or lines in the part; those of the tally count within it."""

    part: Part
    rows: int
    tally: Tally
    failure: Failure | None = None


def scan_part(index: Index, part: Part) -> Scanned:
    """Check a part; a row that cannot be used is a result, for its line is not known in here.

    Raises:
        DataError: The file cannot be read.
    """
    counter = RowCounter()
    try:
        tally = tally_documents(index, part.path, _READERS[part.format](part, counter))
    except RowError as error:
        return Scanned(part, counter.rows, Tally(), Failure(error.row, error.cause))
    if part.format is Format.TEXT:
        # Passages are only a way to read it: the document is the file.
        tally.documents = 1
        tally.hit_documents = Counter(dict.fromkeys(tally.hit_documents, 1))
    return Scanned(part, counter.rows, tally)
