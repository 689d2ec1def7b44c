"""Problems of the reward service: prepared ones by data set and id, and inline tests.

Of prepared data only names and digests are in memory. The records that judges read are made once,
a row group at a time, and lie in a temporary file.
"""

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Literal
from weakref import WeakValueDictionary

import fsspec
from pydantic import JsonValue

from services.reward.models import (
    INLINE,
    RETRY_AFTER,
    DatasetFacts,
    Purpose,
    RefusedError,
    ScoreItem,
)
from shared.analysis.hacking import ProblemTraits
from shared.certificates import certificate_file, read_certificate
from shared.config import RULES
from shared.datasets import parquet_files, read_row_group, row_group_names
from shared.errors import DataError, data_error
from shared.manifests import (
    LOCK_NAME,
    DataRole,
    dataset_roles,
    hash_file,
    load_lock,
    manifest_folder,
)
from shared.reference import ProblemReference, is_reference, reference_of
from shared.schemas import Problem, is_encodable, parse_ground_truth, sha256
from shared.service.logs import get_logger
from shared.text import pack

log = get_logger(__name__)

_Name = tuple[str, str]
_Group = tuple[str, int]
"""A file, and the number of a row group in it."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KnownProblem:
    """A problem that completions can be judged on.

    Signs of reward hacking are found by ``traits``. ``place`` is offset and size of its record in
    the file of records, None for inline tests, whose record is ``inline``.
    """

    reference: ProblemReference
    traits: ProblemTraits
    place: tuple[int, int] | None = None
    inline: bytes = b""

    @property
    def nameable(self) -> str | None:
        """The text of its reference, by which later requests can name it; None if none can."""
        return None if self.place is None else self.reference.text


class ProblemStore:
    """Index of the problems in parquet files or folders, and the records that were asked for.

    ``certificates`` is the use of those beside the files: see ``RewardSettings``.

    Raises:
        DataError: A file cannot be read, differs from its lock, or has a problem of another file.
    """

    def __init__(
        self, paths: Sequence[str], certificates: Literal["weight"] | float | None = None
    ) -> None:
        self._certificates = certificates
        self._trust: dict[ProblemReference, float] = {}
        self._roles: dict[str, DataRole] = {}
        self._groups: dict[_Name, _Group] = {}
        self._names: dict[_Group, list[_Name]] = {}
        self._usable: dict[_Name, KnownProblem | DataError] = {}
        self._inline: WeakValueDictionary[str, KnownProblem] = WeakValueDictionary()
        self._records = tempfile.TemporaryFile(prefix="plumbline-reward-")  # noqa: SIM115 - close()
        # Reading takes seconds. In the threads that requests share it would delay them.
        self._reader = ThreadPoolExecutor(1, "problems")
        for file in (file for path in paths for file in parquet_files(path)):
            self._add(file)
        self._counts = Counter(dataset for dataset, _ in self._groups)

    def datasets(self) -> dict[str, DatasetFacts]:
        """The prepared data sets by name."""
        return {
            name: DatasetFacts(role=self.role(name), problems=count)
            for name, count in sorted(self._counts.items())
        }

    def role(self, dataset: str) -> DataRole:
        """The role of a data set; ``eval`` if it has none, so nobody trains on it."""
        return self._roles.get(dataset, DataRole.EVAL)

    def weight(self, problem: KnownProblem) -> float:
        """The factor of a problem's scores for training; 1 if nothing is known of its tests."""
        trust = self._trust.get(problem.reference, 1.0)
        if isinstance(self._certificates, float):
            return float(trust >= self._certificates)
        return trust

    def record(self, problem: KnownProblem) -> bytes:
        """The packed record of a problem, for the ledger."""
        if problem.place is None:
            return problem.inline
        offset, size = problem.place
        return os.pread(self._records.fileno(), size, offset)

    def close(self) -> None:
        """Remove the temporary file of records."""
        self._reader.shutdown(cancel_futures=True)
        self._records.close()

    async def resolve(
        self, items: Sequence[ScoreItem], purpose: Purpose, *, allow_eval: bool
    ) -> list[KnownProblem]:
        """Find the problems of all items.

        Raises:
            RefusedError: An item names a problem that is unknown, has another content, or is not
                for training, or its inline tests cannot be judged.
        """
        loop, any_role = asyncio.get_running_loop(), allow_eval or purpose is not Purpose.TRAIN
        return await loop.run_in_executor(self._reader, self._resolve, items, any_role)

    def _resolve(self, items: Sequence[ScoreItem], any_role: bool) -> list[KnownProblem]:
        problems: list[KnownProblem] = []
        try:
            for item in items:
                truth = item.ground_truth
                if truth is None or (isinstance(truth, str) and is_reference(truth)):
                    problems.append(self._prepared(item, any_role))
                else:
                    # A prepared set that was exported with inline tests is still that set.
                    dataset = item.dataset or INLINE
                    if dataset in self._counts and not any_role:
                        self._check_role(dataset)
                    problems.append(self._inline_of(dataset, truth))
        except RefusedError as error:
            error.index = len(problems)
            raise
        return problems

    def _add(self, file: str) -> None:
        _check_lock(file)
        if self._certificates and (read := read_certificate(certificate_file(file))):
            certificate = read[0]
            if certificate.rules != RULES:
                cause = f"for rules {certificate.rules}, not {RULES}; certify again"
                raise data_error(certificate_file(file), cause)
            self._trust |= {
                ProblemReference(certificate.dataset, p.problem_id, p.digest): p.trust
                for p in certificate.problems
                if p.trust is not None
            }
        for dataset, role in dataset_roles(file).items():
            if self._roles.setdefault(dataset, role) is not role:
                cause = f"data set {dataset!r} has another role in another file; import it again"
                raise data_error(file, cause)
        for number, names in enumerate(row_group_names(file)):
            self._names[file, number] = names
            for name in names:
                if name in self._groups:
                    cause = f"duplicate problem {name[0]!r}/{name[1]!r}, also in "
                    raise data_error(file, f"{cause}{self._groups[name][0]}; keep one of them")
                self._groups[name] = file, number

    def _prepared(self, item: ScoreItem, any_role: bool) -> KnownProblem:
        name, digest = (item.dataset or "", item.problem_id or ""), item.hash
        if isinstance(item.ground_truth, str):
            try:
                reference = ProblemReference.parse(item.ground_truth)
            except ValueError as error:
                raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
            name, digest = (reference.dataset, reference.problem_id), reference.digest
        if name not in self._groups:
            text = f"data set {name[0]!r} has no problem {name[1]!r}"
            if name[0] not in self._counts:
                listed = ", ".join(sorted(self._counts)[:10]) or "none"
                text = f"unknown data set {name[0]!r}; the service has: {listed}"
                text += " (PLUMBLINE_REWARD_DATA)"
            raise RefusedError(HTTPStatus.NOT_FOUND, text)
        if not any_role:
            self._check_role(name[0])
        problem = self._usable.get(name) or self._read(name)
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

    def _check_role(self, dataset: str) -> None:
        if self.role(dataset) is DataRole.EVAL:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                f"data set {dataset!r} is for evaluation, so a reward for training would be "
                "training on the test; import it with --role train, ask with purpose "
                "'validation', or set PLUMBLINE_REWARD_ALLOW_EVAL=true",
            )

    def _inline_of(self, dataset: str, truth: dict[str, JsonValue] | str) -> KnownProblem:
        text = truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False)
        key = f"{dataset}\n{sha256(text)}"
        if (problem := self._inline.get(key)) is None:
            problem = self._inline[key] = _inline_problem(dataset, text)
        return problem

    def _read(self, name: _Name) -> KnownProblem | DataError:
        """Make the records of a problem's row group.

        Raises:
            RefusedError: The data cannot be read anymore, or the temporary folder is full.
        """
        file, number = group = self._groups[name]
        try:
            problems = read_row_group(file, number)
            for listed, problem in zip(self._names[group], problems, strict=True):
                self._usable[listed] = self._keep(problem)
        except (OSError, DataError) as error:
            log.error("problems cannot be read", file=file, reason=str(error))
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"problems cannot be read: {error}; check the data and the space in "
                f"{tempfile.gettempdir()}",
                retry_after=RETRY_AFTER,
            ) from None
        return self._usable[name]

    def _keep(self, problem: Problem | DataError) -> KnownProblem | DataError:
        if isinstance(problem, DataError):
            log.error("a problem cannot be used", reason=str(problem))
            return problem
        record = pack(problem.model_dump_json())
        offset = self._records.seek(0, os.SEEK_END)
        self._records.write(record)
        self._records.flush()
        place = offset, len(record)
        return KnownProblem(reference_of(problem), ProblemTraits.of(problem), place)


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
    record = pack(problem.model_dump_json())
    return KnownProblem(reference_of(problem), ProblemTraits.of(problem), inline=record)


def _check_lock(file: str) -> None:
    """Compare a file with the lock beside it, if there is one; raises DataError if they differ."""
    if (folder := manifest_folder(file)) is None:
        return
    fs, _ = fsspec.core.url_to_fs(file)
    lock = load_lock(fs.unstrip_protocol(f"{folder}/{LOCK_NAME}"))
    if (locked := lock.files.get(PurePosixPath(file).name)) is None:
        log.warning("a data file is not in the lock beside it", file=file, lock=folder)
    elif hash_file(file) != locked:
        cause = f"its SHA-256 is not the one in {folder}/{LOCK_NAME}; prepare the data again"
        raise data_error(file, cause)
