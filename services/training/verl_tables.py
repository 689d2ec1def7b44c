"""Training data in verl's layout: parquet files that its trainers and its evaluation read.

A row has the columns of verl's ``RLHFDataset``: ``data_source`` (the data set), ``prompt`` (chat
messages), ``ability``, ``reward_model`` and ``extra_info``; for a tool agent ``agent_name`` too.
Source of the layout: verl 0.9.1, verl/utils/dataset/rl_dataset.py. A file that cannot be written or
read is an :class:`OutputError`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import ConfigError, DataError, OutputError
from shared.finished_run import FinishedRun
from shared.manifests import LockedFile, hash_file
from shared.prompts import chat_messages
from shared.reference import reference_of
from shared.run_record import PromptTemplate, SystemPrompt
from shared.schemas import Problem, StdioTests, describe

RECORD = "export.json"


class Purpose(StrEnum):
    """What a file is read for: ``extra_info.split`` of its rows, and the file's name."""

    TRAIN = "train"
    VALIDATION = "validation"

    @property
    def file(self) -> str:
        """Name of the exported file."""
        return f"{self}.parquet"


class TestsForm(StrEnum):
    """Content of ``reward_model.ground_truth``.

    ``REFERENCE``: the problem's reference; the tests stay with the service that judges.
    ``INLINE``: the tests themselves, which a trainer copies into every rollout.
    """

    REFERENCE = "reference"
    INLINE = "inline"


class ExportedFile(LockedFile):
    """A written file: its hash and size, and the problems of each data set."""

    datasets: dict[str, int]


class ExportRecord(BaseModel):
    """``export.json``: provenance of the files beside it.

    ``config`` has the leaves of the baseline's protocol by path; ``prompts`` and ``system_prompt``
    are as in a run's ``run.json``; ``data_files`` are the prepared files by purpose.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    tests: TestsForm
    agent_name: str | None = None
    config: dict[str, JsonValue]
    prompts: dict[str, PromptTemplate]
    system_prompt: SystemPrompt | None = None
    data_files: dict[Purpose, list[str]]
    files: dict[str, ExportedFile]


def read_export(folder: OutputFolder) -> ExportRecord | None:
    """Read the record of an export; None if it is missing."""
    document = folder.read_json(RECORD)
    if document is None:
        return None
    try:
        return ExportRecord.model_validate(document)
    except ValidationError as error:
        cause = f"not the record of an export ({describe(error)})"
        raise OutputError(f"{folder.shown}/{RECORD}: {cause}; export again") from None


# The tool that runs a problem's public tests, as the recipe's tool configuration names it.
PUBLIC_TESTS_TOOL = "run_public_tests"
# Limits of a row group. Inline tests may have 20 MB each.
_ROWS = 512
_CHARACTERS = 64 << 20

# The column of the completions.
RESPONSES = "responses"

Messages = list[dict[str, str]]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """The choices of an export.

    ``messages`` renders a problem's prompt. ``agent_name`` is verl's agent loop, such as
    ``tool_agent``; None leaves the column out.
    """

    messages: Callable[[Problem], Messages]
    tests: TestsForm = TestsForm.REFERENCE
    agent_name: str | None = None


def check_disjoint(train: Sequence[Problem], validation: Sequence[Problem]) -> None:
    """Refuse a problem, or a prompt, that is in both files.

    Raises:
        DataError: There is one; the message names both places.
    """
    seen = {problem.prompt_sha256: problem for problem in train}
    ids = {(problem.dataset, problem.problem_id) for problem in train}
    for problem in validation:
        name = f"{problem.dataset}/{problem.problem_id}"
        if (problem.dataset, problem.problem_id) in ids:
            raise DataError(f"{name} is in the training and the validation data; remove one")
        if same := seen.get(problem.prompt_sha256):
            raise DataError(
                f"{name} of the validation data has the prompt of {same.dataset}/"
                f"{same.problem_id} of the training data; remove one"
            )


def write_table(
    folder: OutputFolder, purpose: Purpose, problems: Sequence[Problem], layout: Layout
) -> ExportedFile:
    """Write a file atomically, in the order of the problems."""
    rows = (_row(index, p, purpose.value, layout) for index, p in enumerate(problems))
    _write(folder, purpose.file, rows, _schema(layout))
    datasets = dict(Counter(problem.dataset for problem in problems))
    return ExportedFile(**hash_file(f"{folder.url}/{purpose.file}").model_dump(), datasets=datasets)


def _write(folder: OutputFolder, name: str, rows: Iterable[Row], schema: pa.Schema) -> None:
    with (
        folder.replacing(name, "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd") as parquet,
    ):
        for group in _groups(rows):
            parquet.write_table(pa.Table.from_pylist(group, schema))


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in groups of bounded size."""
    group: list[Row] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += sum(len(message["content"]) for message in row["prompt"])
        characters += len(row["reward_model"]["ground_truth"])
        characters += sum(map(len, row.get(RESPONSES, ())))
        if len(group) == _ROWS or characters > _CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _row(index: int, problem: Problem, split: str, layout: Layout) -> Row:
    reference = reference_of(problem).text
    inline = layout.tests is TestsForm.INLINE
    ground_truth = problem.ground_truth if inline else reference
    extra: dict[str, object] = {
        "index": index,
        "split": split,
        "dataset": problem.dataset,
        "problem_id": problem.problem_id,
        "reference": reference,
        "difficulty": problem.difficulty,
    }
    row: Row = {
        "data_source": problem.dataset,
        "prompt": layout.messages(problem),
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": extra,
    }
    if layout.agent_name is not None:
        row["agent_name"] = layout.agent_name
        tool = {"create_kwargs": {"public_tests": _public_tests(problem)}}
        extra |= {"need_tools_kwargs": True, "tools_kwargs": {PUBLIC_TESTS_TOOL: tool}}
    return row


def _public_tests(problem: Problem) -> list[dict[str, str]]:
    """The tests that a solver may see; none where it is not known which ones these are."""
    tests = problem.tests
    if not isinstance(tests, StdioTests) or tests.fn_name:
        return []
    public = problem.info.public_tests or 0
    pairs = zip(tests.inputs[:public], tests.outputs[:public], strict=True)
    return [{"input": stdin, "output": output} for stdin, output in pairs]


def _schema(layout: Layout, *, responses: bool = False) -> pa.Schema:
    """Types of the columns, the same for every file: verl concatenates files of equal types."""
    text = pa.string()
    extra: dict[str, pa.DataType] = {"index": pa.int64()}
    extra |= dict.fromkeys(("split", "dataset", "problem_id", "reference", "difficulty"), text)
    columns: dict[str, pa.DataType] = {
        "data_source": text,
        "prompt": pa.list_(_struct({"role": text, "content": text})),
        "ability": text,
        "reward_model": _struct({"style": text, "ground_truth": text}),
    }
    if layout.agent_name is not None:
        create = _struct({"public_tests": pa.list_(_struct({"input": text, "output": text}))})
        tools = _struct({PUBLIC_TESTS_TOOL: _struct({"create_kwargs": create})})
        extra |= {"need_tools_kwargs": pa.bool_(), "tools_kwargs": tools}
        columns["agent_name"] = text
    if responses:
        extra["sample_indices"] = pa.list_(pa.int64())
    columns["extra_info"] = _struct(extra)
    if responses:
        columns[RESPONSES] = pa.list_(text)
    return pa.schema(list(columns.items()))


def _struct(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    return pa.struct(list(fields.items()))


_KEY = "data.output_path"
_SUFFIX = ".parquet"


class ResponsesFile:
    """A parquet file that verl's ``main_eval`` and ``plumb judge --completions`` read.

    A row is a problem with its messages, its tests (inline, so that any reward function can judge),
    its completions in ``responses`` and their numbers in ``extra_info.sample_indices``. A sample
    whose generation failed is left out, and so is a problem without any completion: ``main_eval``
    would count an empty answer as a wrong one.
    """

    def __init__(self, config: Config, inputs: Sequence[str]) -> None:
        """Check the path before the run begins.

        Args:
            config: ``data.output_path``, which is not None, and the prompts.
            inputs: Files and folders that the run reads.

        Raises:
            ConfigError: The name is not a parquet file's, or the run reads this file.
            OutputError: The path is a folder's or cannot be written, or its filesystem is not
                installed.
        """
        url = config.data.output_path or ""
        try:
            self._folder, self._name = OutputFolder.of_file(url, "responses.parquet")
        except OutputError as error:
            raise OutputError(f"{_KEY}: {error}") from None
        self._config = config
        if not url.endswith(_SUFFIX):
            raise ConfigError(f"{_KEY} {url}: name a file that ends in {_SUFFIX}")
        place = f"{self._folder.path}/{self._name}"
        for source in filter(None, inputs):
            if fsspec.core.url_to_fs(source)[1].rstrip("/") in (place, self._folder.path):
                raise ConfigError(f"{_KEY} {url}: the run reads {source}; choose another folder")
        try:
            self._folder.check_writable()
        except OutputError as error:
            raise OutputError(
                f"{_KEY}: {error}; make it writable, or give another path (null writes no file)"
            ) from None

    def write(self, run: FinishedRun, problems: Sequence[Problem]) -> str:
        """Replace the file, and describe it in one line."""
        layout = Layout(lambda problem: chat_messages(problem, self._config), TestsForm.INLINE)
        by_name = {(problem.dataset, problem.problem_id): problem for problem in problems}
        written: list[int] = []

        def rows() -> Iterator[Row]:
            groups = groupby(run.generations(), lambda made: (made.dataset, made.problem_id))
            for name, generations in groups:
                if answers := [answer for answer in generations if answer.error is None]:
                    row = _row(len(written), by_name[name], by_name[name].split, layout)
                    row["extra_info"]["sample_indices"] = [
                        answer.sample_index for answer in answers
                    ]
                    written.append(len(answers))
                    yield {**row, RESPONSES: [answer.completion for answer in answers]}

        try:
            _write(self._folder, self._name, rows(), _schema(layout, responses=True))
        except OutputError as error:
            raise OutputError(f"{_KEY}: {error}; repeat the command to write it again") from None
        left_out = run.record.samples - sum(written)
        rest = f"; {left_out} samples without a completion are left out" if left_out else ""
        place = f"{self._folder.shown.rstrip('/')}/{self._name}"
        return f"{sum(written)} completions of {len(written)} problems in {place}{rest}"
