"""Training data in verl's layout: parquet files that its trainers and its evaluation read.

A row has the columns of verl's ``RLHFDataset``: ``data_source`` (the data set), ``prompt`` (chat
messages), ``ability``, ``reward_model`` and ``extra_info``; for a tool agent ``agent_name`` too.
Source of the layout: verl 0.9.1, verl/utils/dataset/rl_dataset.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.training.export import ExportedFile, Purpose, TestsForm
from shared.artifacts import OutputFolder
from shared.data_lock import hash_file
from shared.errors import DataError
from shared.reference import reference_of
from shared.schemas import Generation, Problem, StdioTests

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
    """Write a file atomically, in the order of the problems.

    Raises:
        OutputError: The file cannot be written.
    """
    rows = (_row(index, one, purpose.value, layout) for index, one in enumerate(problems))
    _write(folder, purpose.file, rows, _schema(layout))
    datasets: dict[str, int] = {}
    for problem in problems:
        datasets[problem.dataset] = datasets.get(problem.dataset, 0) + 1
    return ExportedFile(**hash_file(f"{folder.url}/{purpose.file}").model_dump(), datasets=datasets)


def write_responses(
    folder: OutputFolder,
    name: str,
    answered: Iterable[tuple[Problem, Sequence[Generation]]],
    layout: Layout,
) -> None:
    """Write problems with their completions, as ``main_generation_server`` does, atomically.

    ``responses`` has a problem's completions, ``extra_info.sample_indices`` their numbers. Source
    of the column: verl 0.9.1, verl/trainer/main_generation_server.py and main_eval.py.

    Raises:
        OutputError: The file cannot be written.
    """

    def rows() -> Iterator[Row]:
        for index, (problem, generations) in enumerate(answered):
            row = _row(index, problem, problem.split, layout)
            row["extra_info"]["sample_indices"] = [one.sample_index for one in generations]
            yield {**row, RESPONSES: [one.completion for one in generations]}

    _write(folder, name, rows(), _schema(layout, responses=True))


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
    return [{"input": given, "output": expected} for given, expected in pairs]


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
