"""Segments: files of finished samples, which take their place in Redis during a long run.

A segment is a sequence of gzip members, so ``zcat`` reads it as JSON lines. The first member names
the format and the run. Each other one has a sample's completion, its verdict and, if the run
records them, its cases, as they were in Redis, and is found by its offset. gzip's checksum of each
member tells whether it is damaged. A segment is written as a whole and never changed.

In Redis the sample keeps a :class:`Mark` in place of its verdict.
"""

import base64
import gzip
import json
import re
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TYPE_CHECKING, Self

from shared.errors import OutputError
from shared.ledger.packing import MAX_RECORD
from shared.schemas import SampleId
from shared.statuses import FinalStatus

if TYPE_CHECKING:  # judges are installed without fsspec
    from shared.artifacts import OutputFolder

FOLDER = ".plumbline/segments"
_FORMAT, _VERSION = "plumbline segment", 1
_LEVEL = 3
_BLOCK = 16 * 1024
_NAME = re.compile(r"\d{6,}-[0-9a-f]{8}\.jsonl\.gz")
# Bytes of the samples that the latest call has read, which are kept for the next one: their
# completions are asked for first, then their verdicts.
_KEPT = 32 * 1024 * 1024
# Segments of another filesystem than the local one that are in memory at a time.
_CACHED = 4
_GENERATION, _VERDICT, _CASES = b'{"generation":', b'{"verdict":', b'{"cases":'


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a finished sample, which Redis keeps in place of its verdict.

    Attributes:
        segment: Number of the segment.
        offset: Of the sample's member in it, in bytes.
        status: Status of the verdict.
        sha256: SHA-256 of the completion, as in ``hashes`` before. The script that writes verdicts
            reads it at the end of the text.
    """

    segment: int
    offset: int
    status: FinalStatus
    sha256: str

    def __str__(self) -> str:
        return f"@{self.segment}:{self.offset}:{self.status}:{self.sha256}"

    @classmethod
    def read(cls, stored: bytes) -> Self | None:
        """Read what is stored as a sample's verdict; None if it is a verdict.

        Raises:
            ValueError: It is a mark that this version cannot read.
        """
        if not stored.startswith(b"@"):
            return None
        segment, offset, status, sha = stored[1:].decode().split(":")
        return cls(int(segment), int(offset), FinalStatus(status), sha)


@dataclass(frozen=True, slots=True)
class FinishedSample:
    """A completion and its verdict as JSON, and packed cases if there are any."""

    generation: bytes
    verdict: bytes
    cases: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return len(self.generation) + len(self.verdict) + len(self.cases or b"")

    def packed(self) -> bytes:
        lines = [_GENERATION + self.generation, _VERDICT + self.verdict]
        if self.cases is not None:
            lines.append(_CASES + b'"' + base64.b64encode(self.cases) + b'"')
        return _member(b"".join(line + b"}\n" for line in lines))

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Read a member's content.

        Raises:
            ValueError: It is something else.
        """
        lines = data.split(b"}\n")
        if len(lines) not in (3, 4) or lines[-1]:
            raise ValueError("not a finished sample")
        cases = _after(_CASES, lines[2]) if len(lines) == 4 else None
        return cls(
            _after(_GENERATION, lines[0]),
            _after(_VERDICT, lines[1]),
            None if cases is None else base64.b64decode(cases.strip(b'"'), validate=True),
        )


def segment_name(number: int) -> str:
    """A file name for a segment, used once only, even if Redis forgets the number."""
    return f"{number:06}-{secrets.token_hex(4)}.jsonl.gz"


def segment_folder(run: str) -> str:
    """The folder of a run's segments, within its output folder."""
    return f"{FOLDER}/{run}"


def write_segment(
    file: IO[bytes], run: str, number: int, samples: Iterable[FinishedSample]
) -> Iterator[int]:
    """Write a segment; yields the offset of each sample after it was written."""
    header = {"format": _FORMAT, "version": _VERSION, "run": run, "number": number}
    at = file.write(_member(json.dumps(header).encode() + b"\n"))
    for sample in samples:
        yield at
        at += file.write(sample.packed())


def is_segment_name(name: str) -> bool:
    """Whether a file name is that of a segment that was written to its end."""
    return _NAME.fullmatch(name) is not None


def read_segment(file: IO[bytes], run: str) -> Iterator[FinishedSample]:
    """Read all samples of a segment from its beginning.

    Raises:
        ValueError: It is no segment of the run.
        OSError: It is damaged; also EOFError and zlib.error.
    """
    with gzip.open(file) as lines:
        header = json.loads(lines.readline() or "null")
        expected = {"format": _FORMAT, "version": _VERSION, "run": run}
        if not isinstance(header, dict) or expected != {k: header.get(k) for k in expected}:
            raise ValueError(f"its header is {json.dumps(header)[:200]}")
        found: list[bytes] = []
        for line in lines:
            if found and line.startswith(_GENERATION):
                yield FinishedSample.unpacked(b"".join(found))
                found = []
            found.append(line)
        if found:
            yield FinishedSample.unpacked(b"".join(found))


class SegmentReader:
    """Reads finished samples of one run from its segments. Thread-safe.

    Args:
        folder: The run's output folder.
        run: The run's id.
        name_of: Returns the file name of a segment by its number; None if there is none.
    """

    def __init__(
        self, folder: "OutputFolder", run: str, name_of: Callable[[int], str | None]
    ) -> None:
        self._folder = folder
        self._run = run
        self._name_of = name_of
        self._names: dict[int, str] = {}
        self._cached: OrderedDict[int, bytes] = OrderedDict()
        self._latest: dict[Mark, FinishedSample] = {}
        self._lock = threading.Lock()

    def read(self, marks: Sequence[tuple[SampleId, Mark]]) -> dict[SampleId, FinishedSample]:
        """Read samples, in the order of their places.

        Raises:
            OutputError: A segment is missing or damaged; the message names its path.
        """
        with self._lock:
            found = {one: self._latest[mark] for one, mark in marks if mark in self._latest}
            of_segment: dict[int, list[tuple[SampleId, Mark]]] = {}
            for sample, mark in marks:
                if sample not in found:
                    of_segment.setdefault(mark.segment, []).append((sample, mark))
            for number, wanted in of_segment.items():
                wanted.sort(key=lambda one: one[1].offset)
                found |= self._read(number, wanted)
            small = sum(one.size for one in found.values()) <= _KEPT
            self._latest = {mark: found[sample] for sample, mark in marks} if small else {}
        return found

    def _read(
        self, number: int, wanted: Sequence[tuple[SampleId, Mark]]
    ) -> dict[SampleId, FinishedSample]:
        found: dict[SampleId, FinishedSample] = {}
        name = self._name(number)
        at = 0
        try:
            with self._open(number, name) as file:
                self._check_header(json.loads(_read_member(file, 0)), number)
                for sample, mark in wanted:
                    at = mark.offset
                    found[sample] = _checked(_read_member(file, at), sample, mark)
        except FileNotFoundError:
            raise self._unusable(name, "is missing") from None
        except (OSError, ValueError, LookupError, TypeError, zlib.error) as error:
            reason = f"cannot be read at byte {at} ({str(error)[:200]})"
            raise self._unusable(name, reason) from None
        return found

    def _name(self, number: int) -> str:
        if number not in self._names:
            if (name := self._name_of(number)) is None:
                raise self._unusable(f"{number:06}-*", "is not listed in Redis")
            # Whoever wrote to Redis must not choose what file is opened.
            if not _NAME.fullmatch(name) or self._run in (".", ".."):
                raise self._unusable(name[:100], "is not the name of a segment")
            self._names[number] = name
        return self._names[number]

    def _open(self, number: int, name: str) -> IO[bytes]:
        path = f"{segment_folder(self._run)}/{name}"
        if self._folder.local:
            return self._folder.open(path)
        if number not in self._cached:
            with self._folder.open(path) as file:
                self._cached[number] = file.read()
            while len(self._cached) > _CACHED:
                self._cached.popitem(last=False)
        self._cached.move_to_end(number)
        return BytesIO(self._cached[number])

    def _check_header(self, header: object, number: int) -> None:
        expected = {"format": _FORMAT, "version": _VERSION, "run": self._run, "number": number}
        if header != expected:
            raise ValueError(f"its header is {json.dumps(header)[:200]}")

    def _unusable(self, name: str, what: str) -> OutputError:
        path = f"{self._folder.shown.rstrip('/')}/{segment_folder(self._run)}/{name}"
        return OutputError(
            f"{path} {what}: finished samples of run {self._run} are only there; put the file back "
            "(from a backup) and repeat the command, or start the run over with --force"
        )


def _member(data: bytes) -> bytes:
    return gzip.compress(data, _LEVEL, mtime=0)


def _read_member(file: IO[bytes], offset: int) -> bytes:
    """Read the member at an offset.

    Raises:
        ValueError: It is incomplete, or larger than what is written there.
        zlib.error: It is damaged.
    """
    file.seek(offset)
    machine = zlib.decompressobj(wbits=31)
    parts, size = [], 0
    while not machine.eof:
        block = machine.unconsumed_tail or file.read(_BLOCK)
        if not block:
            raise ValueError("the file ends there")
        part = machine.decompress(block, MAX_RECORD)
        parts.append(part)
        size += len(part)
        if size > 3 * MAX_RECORD:
            raise ValueError("larger than a finished sample")
    return b"".join(parts)


def _checked(data: bytes, sample: SampleId, mark: Mark) -> FinishedSample:
    """Check that a member is the sample that the mark is of."""
    found = FinishedSample.unpacked(data)
    verdict = json.loads(found.verdict)
    names = (verdict["dataset"], verdict["problem_id"], verdict["sample_index"])
    if SampleId(*names) != sample or verdict["completion_sha256"] != mark.sha256:
        raise ValueError(f"not the sample {sample.key}")
    return found


def _after(begin: bytes, line: bytes) -> bytes:
    if not line.startswith(begin):
        raise ValueError("not a finished sample")
    return line[len(begin) :]
