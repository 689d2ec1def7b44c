"""Problems of the reward service: prepared ones by data set and id, and inline tests.

Of prepared data only names and digests are in memory. The records that judges read are made once,
a row group at a time, and lie in a temporary file.
"""

import asyncio
import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Literal
from weakref import WeakValueDictionary

import fsspec

from services.reward.errors import RETRY_AFTER, RefusedError
from services.reward.models import INLINE, DatasetFacts, Purpose, ScoreItem
from shared.analysis.hacking import ProblemTraits
from shared.certificates import certificate_file, read_certificate
from shared.config import RULES
from shared.data_lock import LOCK_NAME, hash_file, load_lock
from shared.data_roles import DataRole, dataset_roles, manifest_folder
from shared.datasets import parquet_files, read_row_group, row_group_names
from shared.errors import DataError, data_error
from shared.ledger.packing import pack
from shared.ledger.rewards import RewardProblem
from shared.reference import ProblemReference, is_reference, problem_digest
from shared.schemas import Problem, is_encodable, parse_ground_truth, sha256
from shared.service.logs import get_logger

log = get_logger(__name__)

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KnownProblem:
    """A problem that completions can be judged on.

    Attributes:
        reference: Its reference.
        name: Its name in the ledger.
        place: Offset and size of its record in the file of records; None for inline tests.
        inline: The record of inline tests; empty for a prepared problem.
        traits: By which signs of reward hacking are found.
    """

    reference: ProblemReference
    name: RewardProblem
    place: tuple[int, int] | None = None
    inline: bytes = b""
    traits: ProblemTraits = field(default_factory=ProblemTraits)

    @property
    def nameable(self) -> str | None:
        """The text of its reference, by which later requests can name it; None if none can."""
        return None if self.place is None else self.reference.text


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group of a file."""

    path: str
    number: int


class _RecordFile:
    """Packed records, in a file without a name that ends with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="plumbline-reward-")  # noqa: SIM115 - closed below
        self._size = 0

    def add(self, record: bytes) -> tuple[int, int]:
        """Append a record; returns its offset and size. Not thread-safe.

        Raises:
            OSError: The disk is full.
        """
        place = self._size, len(record)
        left = memoryview(record)
        while left:  # a nearly full disk takes a part
            written = os.pwrite(self._file.fileno(), left, self._size)
            self._size += written
            left = left[written:]
        return place

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        self._file.close()


class ProblemStore:
    """Index of all problems, and the records of those that were used.

    Args:
        paths: Parquet files, or folders of them.
        certificates: Use of the certificates beside them: see ``RewardSettings``.

    Raises:
        DataError: A file cannot be read, differs from its lock, or has a problem of another file.
    """

    def __init__(
        self, paths: Sequence[str], certificates: Literal["weight"] | float | None = None
    ) -> None:
        self._certificates = certificates
        self._trust: dict[tuple[str, str, str], float] = {}
        self._roles: dict[str, DataRole] = {}
        self._datasets: set[str] = set()
        self._groups: dict[_Name, _Group] = {}
        self._names: dict[_Group, list[_Name]] = {}
        self._known: dict[_Name, KnownProblem | DataError] = {}
        self._inline: WeakValueDictionary[str, KnownProblem] = WeakValueDictionary()
        self._records = _RecordFile()
        self._lock = threading.Lock()
        for file in (file for path in paths for file in parquet_files(path)):
            self._add(file)

    def datasets(self) -> dict[str, DatasetFacts]:
        """The prepared data sets by name."""
        counts = Counter(dataset for dataset, _ in self._groups)
        return {
            name: DatasetFacts(role=self.role(name), problems=count)
            for name, count in sorted(counts.items())
        }

    def role(self, dataset: str) -> DataRole:
        """The role of a data set; ``eval`` if it has none, so nobody trains on it."""
        return self._roles.get(dataset, DataRole.EVAL)

    def weight(self, problem: KnownProblem) -> float:
        """The factor of a problem's scores for training; 1 if nothing is known of its tests."""
        found = problem.reference
        trust = self._trust.get((found.dataset, found.problem_id, found.digest), 1.0)
        if isinstance(self._certificates, float):
            return float(trust >= self._certificates)
        return trust

    def record(self, problem: KnownProblem) -> bytes:
        """The packed record of a problem, for the ledger."""
        return self._records.read(*problem.place) if problem.place else problem.inline

    def close(self) -> None:
        """Remove the temporary file of records."""
        self._records.close()

    async def resolve(
        self, items: Sequence[ScoreItem], purpose: Purpose, *, allow_eval: bool
    ) -> list[KnownProblem]:
        """Find the problems of all items.

        Raises:
            RefusedError: An item names a problem that is unknown, has another content, or is not
                for training, or its inline tests cannot be judged.
        """
        wanted: list[tuple[_Name, str | None] | None] = []
        for index, item in enumerate(items):
            try:
                wanted.append(self._name_of(item, purpose, allow_eval=allow_eval))
            except RefusedError as error:
                raise error.at(index) from None
        unread = {name for found in wanted if found and (name := found[0]) not in self._known}
        inline = any(found is None for found in wanted)
        if unread:
            await asyncio.to_thread(self._read_all, {self._groups[name] for name in unread})
        if inline:
            return await asyncio.to_thread(self._resolved, items, wanted)
        return self._resolved(items, wanted)

    def warm(self, stop: threading.Event) -> None:
        """Make the records of all problems, until ``stop`` is set; for a thread."""
        for group in self._names:
            if stop.is_set():
                return
            with suppress(RefusedError):  # logged, and told to whoever asks for such a problem
                self._read_all([group])

    def _add(self, file: str) -> None:
        _check_lock(file)
        if self._certificates and (found := read_certificate(certificate_file(file))):
            certificate = found[0]
            if certificate.rules != RULES:
                cause = f"for rules {certificate.rules}, not {RULES}; certify again"
                raise data_error(certificate_file(file), cause)
            self._trust |= {
                (certificate.dataset, one.problem_id, one.digest): one.trust
                for one in certificate.problems
                if one.trust is not None
            }
        for dataset, role in dataset_roles(file).items():
            if self._roles.setdefault(dataset, role) is not role:
                cause = f"data set {dataset!r} has another role in another file; import it again"
                raise data_error(file, cause)
        for number, names in enumerate(row_group_names(file)):
            group = _Group(file, number)
            self._names[group] = names
            for name in names:
                if name in self._groups:
                    cause = f"duplicate problem {name[0]!r}/{name[1]!r}, also in "
                    raise data_error(file, f"{cause}{self._groups[name].path}; keep one of them")
                self._groups[name] = group
                self._datasets.add(name[0])

    def _name_of(
        self, item: ScoreItem, purpose: Purpose, *, allow_eval: bool
    ) -> tuple[_Name, str | None] | None:
        """Name and expected digest of a prepared problem; None for inline tests."""
        if item.ground_truth is None:
            name, digest = (item.dataset or "", item.problem_id or ""), item.hash
        elif isinstance(item.ground_truth, str) and is_reference(item.ground_truth):
            try:
                found = ProblemReference.parse(item.ground_truth)
            except ValueError as error:
                raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
            name, digest = (found.dataset, found.problem_id), found.digest
        else:
            # A prepared set that was exported with inline tests is still that set.
            if item.dataset in self._datasets:
                self._check_role(item.dataset, purpose, allow_eval)
            return None
        if name not in self._groups:
            raise self._unknown(name)
        self._check_role(name[0], purpose, allow_eval)
        return name, digest

    def _check_role(self, dataset: str, purpose: Purpose, allow_eval: bool) -> None:
        if purpose is Purpose.TRAIN and not allow_eval and self.role(dataset) is DataRole.EVAL:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                f"data set {dataset!r} is for evaluation, so a reward for training would be "
                "training on the test; import it with --role train, ask with purpose "
                "'validation', or set PLUMBLINE_REWARD_ALLOW_EVAL=true",
            )

    def _unknown(self, name: _Name) -> RefusedError:
        dataset, problem_id = name
        if dataset in self._datasets:
            text = f"data set {dataset!r} has no problem {problem_id!r}"
        else:
            listed = ", ".join(sorted(self._datasets)[:10]) or "none"
            text = (
                f"unknown data set {dataset!r}; the service has: {listed} (PLUMBLINE_REWARD_DATA)"
            )
        return RefusedError(HTTPStatus.NOT_FOUND, text)

    def _resolved(
        self, items: Sequence[ScoreItem], wanted: Sequence[tuple[_Name, str | None] | None]
    ) -> list[KnownProblem]:
        problems = []
        for index, (item, found) in enumerate(zip(items, wanted, strict=True)):
            try:
                problems.append(self._inline_problem(item) if found is None else self._own(*found))
            except RefusedError as error:
                raise error.at(index) from None
        return problems

    def _own(self, name: _Name, digest: str | None) -> KnownProblem:
        problem = self._known[name]
        if isinstance(problem, DataError):
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(problem))
        if digest is not None and digest != problem.reference.digest:
            raise RefusedError(
                HTTPStatus.CONFLICT,
                f"problem {name[1]!r} of {name[0]!r} has the hash {problem.reference.digest} here, "
                f"but {digest} was asked for: the prepared data changed; export the training data "
                "again",
            )
        return problem

    def _inline_problem(self, item: ScoreItem) -> KnownProblem:
        given = item.ground_truth
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        dataset = item.dataset or INLINE
        key = f"{dataset}\n{sha256(text)}"
        if (found := self._inline.get(key)) is None:
            found = self._inline[key] = _inline_problem(dataset, text)
        return found

    def _read_all(self, groups: Iterable[_Group]) -> None:
        """Make the records of row groups, each once; blocks.

        Raises:
            RefusedError: The data cannot be read anymore, or the temporary folder is full.
        """
        for group in groups:
            try:
                with self._lock:
                    self._read(group)
            except (OSError, DataError) as error:
                log.error("problems cannot be read", file=group.path, reason=str(error))
                raise RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"problems cannot be read: {error}; check the data and the space in "
                    f"{tempfile.gettempdir()}",
                    retry_after=RETRY_AFTER,
                ) from None

    def _read(self, group: _Group) -> None:
        names = self._names[group]
        if all(name in self._known for name in names):
            return
        for name, problem in zip(names, read_row_group(group.path, group.number), strict=True):
            if isinstance(problem, DataError):
                log.error("a problem cannot be used", reason=str(problem))
                self._known[name] = problem
            else:
                place = self._records.add(pack(problem.model_dump_json()))
                self._known[name] = _known(problem, place)


def _known(problem: Problem, place: tuple[int, int] | None, inline: bytes = b"") -> KnownProblem:
    digest = problem_digest(problem)
    name = RewardProblem.of(problem.dataset, problem.problem_id, digest)
    reference = ProblemReference(problem.dataset, problem.problem_id, digest)
    return KnownProblem(reference, name, place, inline, ProblemTraits.of(problem))


def _inline_problem(dataset: str, text: str) -> KnownProblem:
    try:
        if not is_encodable(text):
            raise ValueError("a text has lone surrogates and cannot be encoded")
        parse_ground_truth(text)
    except ValueError as error:
        raise RefusedError(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"ground_truth cannot be judged: {error}"
        ) from None
    problem = Problem(
        dataset=dataset,
        split=INLINE,
        problem_id=sha256(text),
        prompt="",
        data_source=dataset,
        ground_truth=text,
        difficulty="",
        sandbox_dataset="",
        sandbox_id="",
        prompt_sha256=sha256(""),
    )
    return _known(problem, None, pack(problem.model_dump_json()))


def _check_lock(file: str) -> None:
    """Compare a file with the lock that lies beside it, if one does.

    Raises:
        DataError: Its content is another one.
    """
    folder = manifest_folder(file)
    if folder is None:
        return
    fs, _ = fsspec.core.url_to_fs(file)
    lock = load_lock(fs.unstrip_protocol(f"{folder}/{LOCK_NAME}"))
    name = PurePosixPath(file).name
    if (locked := lock.files.get(name)) is None:
        log.warning("a data file is not in the lock beside it", file=file, lock=folder)
    elif hash_file(file) != locked:
        cause = f"its SHA-256 is not the one in {folder}/{LOCK_NAME}; prepare the data again"
        raise data_error(file, cause)
