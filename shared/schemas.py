"""Records that services exchange: problems, samples, generations, verdicts."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, Self
from urllib.parse import quote, unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import from_json

from shared.checkers import CheckerStyle, get_checker
from shared.redaction import redact
from shared.statuses import (
    Convention,
    ExtractionReason,
    FinalStatus,
    JudgeMethod,
    TokenSource,
    VerdictDetail,
)
from shared.text import plain_message, shorten_end

_SURROGATE = re.compile("[\ud800-\udfff]")

# A message of another program, which may quote an address or a header.
ForeignText = Annotated[str, AfterValidator(redact)]
# Characters of a described error, and of its location in it: both may quote what is wrong.
_LONGEST_ERROR, _LONGEST_PLACE = 1000, 200

_DENIED = re.compile(r"PermissionError|Operation not permitted|Read-only file system")
_CALLABLE = re.compile(r"(\w+)\s*\(")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(BaseModel):
    """Part of a record that may have further fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _known_checker(name: str) -> str:
    get_checker(name)
    return name


class StdioTests(_Record):
    """Standard input and output, or calls of ``fn_name``.

    An input of a call has one argument as JSON in each line, the output is its result as JSON. Both
    may be given as lists of values instead, as APPS has them. ``convention`` tells what stands
    before an answer, and how results compare (``services/judge/methods/stdio.py``).

    A problem with several correct answers has its own ``checker`` (see ``shared.checkers``) or a
    special judge, ``checker_source`` in ``checker_language``: Python that defines
    ``check(input, output, expected)``, or a program in Python or C++ that is called with the paths
    of input, output and expected output and exits with testlib's codes.
    """

    inputs: list[str] = Field(min_length=1)
    outputs: list[str]
    fn_name: str | None = None
    convention: Convention | None = None
    checker: Annotated[str, AfterValidator(_known_checker)] | None = None
    checker_source: str | None = None
    checker_language: Literal["python", "cpp"] = "python"

    @property
    def cases(self) -> int:
        return len(self.inputs)

    @property
    def calls(self) -> Convention:
        """The convention of calls; data without one that name ``json`` are LiveCodeBench's."""
        as_json = self.checker == "json"
        return self.convention or (Convention.LIVECODEBENCH if as_json else Convention.VERL)

    @property
    def has_checker(self) -> bool:
        """Whether the problem brings or names its own checker."""
        return self.checker is not None or self.checker_source is not None

    @property
    def checker_style(self) -> CheckerStyle | None:
        """Form of the special judge; None without one, or if the source has none of the forms."""
        source = self.checker_source
        if source is None:
            return None
        if self.checker_language == "cpp":
            return CheckerStyle.BINARY if "main" in source else None
        if "def check" in source:
            return CheckerStyle.FUNCTION
        return CheckerStyle.SCRIPT if "argv" in source else None

    @model_validator(mode="before")
    @classmethod
    def _lists_as_lines(cls, fields: object) -> object:
        """Write lists of values as JSON."""
        if not (isinstance(fields, dict) and fields.get("fn_name")):
            return fields
        inputs, outputs = fields.get("inputs"), fields.get("outputs")
        if not (inputs and isinstance(inputs, list) and isinstance(outputs, list)):
            return fields
        if not all(isinstance(arguments, list) for arguments in inputs):
            return fields
        lines = ["\n".join(map(json.dumps, arguments)) for arguments in inputs]
        results = [json.dumps(output) for output in outputs]
        own = {"convention": Convention.APPS, **fields}
        return own | {"inputs": lines, "outputs": results}

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"{len(self.inputs)} inputs but {len(self.outputs)} outputs")
        if self.fn_name and (self.checker_source or self.checker not in (None, "json")):
            raise ValueError(
                f"calls of {self.fn_name!r} compare values; leave out checker and checker_source"
            )
        if self.checker_source is not None and self.checker_style is None:
            python = "must define check(input, output, expected) or read the files in sys.argv"
            cpp = "must have a main function"
            raise ValueError(f"checker_source {cpp if self.checker_language == 'cpp' else python}")
        return self


class HumanEvalTests(_Record):
    """A ``check(candidate)`` function in ``test``, called with the function ``entry_point``.

    With ``limit_per_call`` the time limit is that of each call of the answer, not of all together.
    """

    test: str = Field(min_length=1)
    entry_point: str = Field(min_length=1)
    prompt: str = ""
    limit_per_call: bool = False

    @property
    def cases(self) -> int:
        return 1  # ``check`` counts as one case


class MbppTests(_Record):
    """Assert statements, run after ``test_setup_code`` and the answer.

    ``limit_per_call`` is as in :class:`HumanEvalTests`.
    """

    test_list: list[str] = Field(min_length=1)
    test_setup_code: str = ""
    limit_per_call: bool = False

    @property
    def cases(self) -> int:
        return len(self.test_list)


class ProgramTests(_Record):
    """Tests in the language of the answer, which continue its program (MultiPL-E).

    ``language`` is SandboxFusion's name of it. ``prompt`` ends within a function; ``program_tests``
    may begin with the brace that closes it. ``stop_tokens`` end a completion of the prompt.
    """

    language: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    program_tests: str = Field(min_length=1)
    stop_tokens: list[str] = Field(default_factory=list)

    @property
    def cases(self) -> int:
        return 1  # the first test that fails ends the program

    @property
    def entry_point(self) -> str:
        """The function that the prompt begins; empty if its last line names none."""
        call = _CALLABLE.search(self.prompt.rstrip().rpartition("\n")[2])
        return call[1] if call else ""


class SandboxFusionTests(_Record):
    """Tests that a SandboxFusion server has in a data set of its own, for the method ``submit``."""

    sandbox_dataset: str = Field(min_length=1)
    sandbox_id: str = Field(min_length=1)

    @property
    def cases(self) -> int:
        return 1  # their number comes with the verdict


GroundTruth = StdioTests | HumanEvalTests | MbppTests | ProgramTests | SandboxFusionTests
_GROUND_TRUTHS: dict[str, type[GroundTruth]] = {
    "inputs": StdioTests,
    "program_tests": ProgramTests,
    "entry_point": HumanEvalTests,
    "test_list": MbppTests,
    "sandbox_id": SandboxFusionTests,
}


def parse_ground_truth(text: str) -> GroundTruth:
    """Parse a ``ground_truth`` column.

    Raises:
        ValueError: Not JSON, not one of the formats, or tests that cannot be judged (no
            tests, unequal numbers of inputs and outputs); the message is one line.
    """
    try:
        fields = from_json(text)
    except (TypeError, ValueError) as error:  # the former of a text with lone surrogates
        raise ValueError(f"not JSON: {shorten_end(str(error), _LONGEST_ERROR)}") from None
    if isinstance(fields, dict):
        # Arrow completes the rows of different formats to the same fields.
        fields = {name: value for name, value in fields.items() if value is not None}
        if kind := next((kind for key, kind in _GROUND_TRUTHS.items() if key in fields), None):
            try:
                return kind.model_validate(fields)
            except ValidationError as error:
                raise ValueError(describe(error)) from None
    raise ValueError(
        "not JSON with inputs/outputs, test/entry_point/prompt, test_list/test_setup_code or "
        "program_tests/language/prompt"
    )


def describe(error: ValidationError) -> str:
    """Format the first error that pydantic found, with its location, in one short line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = shorten_end(".".join(str(part) for part in first["loc"]), _LONGEST_PLACE)
    message = plain_message(first["msg"])
    return shorten_end(f"{where}: {message}" if where else message, _LONGEST_ERROR)


class ProblemInfo(Part):
    """Optional properties of a problem, other than its tests.

    ``time_limit`` is in seconds, ``memory_limit`` in bytes, ``contest_date`` the day of its contest
    in ISO 8601. A problem's tests are ordered: public,
    private, generated; the counts give the number of each.
    """

    tags: tuple[str, ...] = ()
    time_limit: float | None = None
    memory_limit: int | None = None
    public_tests: int | None = None
    private_tests: int | None = None
    generated_tests: int | None = None
    contest_date: str | None = None


class QualityFinding(StrEnum):
    """A finding of the test audit; the column ``quality`` is ``ok`` if there is none."""

    DUPLICATE_TESTS = "duplicate_tests"
    """The same test occurs twice."""
    CONTRADICTING_TESTS = "contradicting_tests"
    """Two tests have the same input and expect different outputs."""
    EMPTY_STATEMENT = "empty_statement"
    """The prompt has no text."""
    BLANK_OUTPUT = "blank_output"
    """A test expects no output, so that a program which does nothing passes it."""
    LARGE_OUTPUT = "large_output"
    """An expected output above 128 KiB, which SandboxFusion truncates or blocks on."""
    REJECTED_SOLUTION = "rejected_solution"
    """The judge rejects a reference solution."""
    MANY_ANSWERS = "many_answers"
    """Several outputs are right, but the problem has no checker: right answers may be rejected."""
    BROKEN_CHECKER = "broken_checker"
    """The problem's own checker cannot judge, or rejects the expected outputs."""
    TEST_ERROR = "test_error"
    """The tests cannot run, whatever the answer is."""
    SHARED_PROCESS = "shared_process"
    """The tests run in the answer's process, where it can reach them."""


def quality_text(findings: set[QualityFinding]) -> str:
    """Format the column: ``ok``, or the findings in the order above, separated by commas."""
    return ",".join(finding for finding in QualityFinding if finding in findings) or "ok"


def quality_findings(text: str) -> set[QualityFinding]:
    """Parse the column; unknown words are ignored."""
    return {finding for finding in QualityFinding if finding in text.split(",")}


class ChatMessage(_Record):
    """A message as a model gets it; ``role`` is ``system`` or ``user``."""

    role: str
    content: str


class Problem(_Record):
    """A row of a data set. ``tests`` and ``info`` are parsed from JSON columns.

    ``quality``: ``ok``, or the findings of the test audit separated by commas; empty without an
    audit.
    """

    dataset: str = Field(min_length=1)
    split: str = ""
    problem_id: str = Field(min_length=1)
    prompt: str
    data_source: str = ""
    ground_truth: str
    difficulty: str = ""
    sandbox_dataset: str = ""
    sandbox_id: str = ""
    prompt_sha256: str = ""
    quality: str = ""
    extra_info: str = ""

    @cached_property
    def tests(self) -> GroundTruth:
        return parse_ground_truth(self.ground_truth)

    @cached_property
    def info(self) -> ProblemInfo:
        """Parsed ``extra_info``; empty if its format is another one, which verl permits."""
        try:
            return ProblemInfo.model_validate_json(self.extra_info or "{}")
        except ValidationError:
            return ProblemInfo()


def readable_tests(problem: Problem | None) -> GroundTruth | None:
    """Return a problem's tests; None if it is missing or they cannot be read."""
    try:
        return problem.tests if problem else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """Problem properties that results are listed and sliced by.

    ``num_tests`` is None when the tests cannot be read, ``prompt_length`` (characters) when the
    problem is unknown. ``many_answers`` is the audit's finding.
    """

    difficulty: str = ""
    tags: tuple[str, ...] = ()
    num_tests: int | None = None
    prompt_length: int | None = None
    many_answers: bool = False


@dataclass(frozen=True, order=True, slots=True)
class SampleId:
    """Identifies one sample, and so one completion, within a run."""

    dataset: str
    problem_id: str
    sample_index: int = 0

    @property
    def key(self) -> str:
        """The id as printable text: ``dataset/problem_id/sample_index``, percent-encoded."""
        return (
            f"{quote(self.dataset, safe='')}/{quote(self.problem_id, safe='')}/{self.sample_index}"
        )

    @classmethod
    def parse(cls, key: str) -> "SampleId":
        """Parse a ``key``.

        Raises:
            ValueError: ``key`` is invalid.
        """
        dataset, problem_id, index = key.split("/")
        return cls(unquote(dataset), unquote(problem_id), int(index))


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode the text, that is, it has no lone surrogates."""
    return _SURROGATE.search(text) is None


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON may contain but UTF-8 cannot encode, with U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def sha256(text: str) -> str:
    """Hex SHA-256 of a text in UTF-8; lone surrogates are encoded as three bytes each."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _OfSample(_Record):
    dataset: str
    problem_id: str
    sample_index: int = Field(default=0, ge=0)

    @property
    def sample(self) -> SampleId:
        return SampleId(self.dataset, self.problem_id, self.sample_index)


class _SampleRecord(_OfSample):
    completion_sha256: str


class Generation(_SampleRecord):
    """One completion as generated: a line of ``generations.jsonl``.

    If generation failed, ``error`` is set and the completion is empty; the sample is ``api_error``
    and is not judged. ``gen_time`` is the duration in seconds of the request that succeeded,
    ``seed`` its sampling seed, ``requests`` the number of all requests. ``replica`` is the name of
    the replica, or host and port of its server. ``output_tokens_from`` says that it was not the
    engine that counted ``output_tokens``. ``reasoning`` is the text that the server sent apart from
    the completion; ``completion_from`` says that it sent nothing else, so that it is the
    completion.
    """

    completion: str
    completion_from: Literal["reasoning"] | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_from: TokenSource | None = None
    gen_time: float | None = None
    replica: ForeignText | None = None
    seed: int | None = None
    requests: int = 1
    error: ForeignText | None = None
    finished_at: float | None = None

    @classmethod
    def missing(cls, sample: SampleId, why: str = "not generated") -> Self:
        """Create the record of a sample without a completion."""
        return cls(**asdict(sample), completion="", completion_sha256="", error=why)


class _CaseTexts(_Record):
    """Place of a case among the problem's tests, from 0, and its standard streams."""

    case_index: int = Field(ge=0)
    input: str | None = None
    expected: str | None = None
    actual: str | None = None
    stderr: str | None = None


class FailedCase(_CaseTexts):
    """The first case that did not pass; long texts are shortened in the middle."""

    status: FinalStatus

    @property
    def denied(self) -> bool:
        """Whether the program ended because the sandbox refused what it tried."""
        return _DENIED.search(self.stderr or "") is not None


RecordedCases = Literal["none", "all", "failed", "first"]
"""Cases that a run records beside its verdicts: ``output.cases``."""


class CaseResult(_CaseTexts):
    """A case as the ledger keeps it: what its problem tells is missing.

    Its status is ``not_run`` behind the last time-out that is allowed. ``exit_code`` is -n for
    signal n, and None if the program did not run or its tests ended before it did. ``duration`` are
    wall-clock seconds without compiling, ``memory_mb`` the peak resident set in MiB.
    """

    status: FinalStatus | Literal["not_run"]
    exit_code: int | None = None
    duration: float | None = None
    cpu_time: float | None = None
    memory_mb: float | None = None
    compile_duration: float | None = None
    compile_stderr: str | None = None


class CaseRecord(CaseResult, _OfSample):
    """A case of a sample: a line of ``cases.jsonl.gz``.

    Long texts are shortened in the middle; what is not known is None. Function tests share one run,
    whose times the first case has.
    """


class InfraFailure(_Record):
    """An infrastructure failure; serialized as ``kind: text``, or ``kind`` alone.

    ``kind`` is a ``FailureKind``, ``http_<status>``, or the class name of an exception.
    """

    kind: str
    text: ForeignText | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        kind, separator, text = value.partition(": ")
        return {"kind": kind, "text": text if separator else None}

    @model_serializer
    def __str__(self) -> str:
        return self.kind if self.text is None else f"{self.kind}: {self.text}"


class JudgedCode(_Record):
    """The code that was judged, as extracted from the completion.

    It does not include the code that a method adds (a prompt, tests, a function call). ``reason``
    is the place in the completion where it was found. ``start`` and ``end`` are character offsets;
    None if the code is not one contiguous part of the completion (line ends or indentation differ,
    or reasoning was removed from it). ``text`` is the code if it has no offsets.
    """

    sha256: str
    reason: ExtractionReason
    start: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)
    text: str | None = None

    @classmethod
    def of(cls, code: str, reason: ExtractionReason, start: int | None) -> Self:
        if start is None:
            return cls(sha256=sha256(code), reason=reason, text=code)
        return cls(sha256=sha256(code), reason=reason, start=start, end=start + len(code))

    def read(self, completion: str) -> str:
        """Return the code, given the completion that it was extracted from."""
        return completion[self.start : self.end] if self.text is None else self.text


class Verdict(_SampleRecord):
    """Result of judging: a line of ``verdicts.jsonl``.

    ``detail`` refines the status: a ``VerdictDetail``, the name of a signal, or the reason why the
    sample is unjudged; ``missing_module`` is the name of the module that it is about.
    ``cases_not_run`` counts the cases behind the last time-out that
    ``judge.max_timeouts`` allows; if there are any, ``pass_ratio`` is a lower bound, and
    ``accepted`` is exact all the same. ``total_judge_time`` is the sum of the cases' durations in
    seconds, ``cpu_time`` the sum of their CPU seconds, and ``peak_memory`` the maximum of their
    memory in bytes, if the method measures them. ``attempts`` counts the requests to the sandbox,
    ``infra_failures`` lists the requests that failed for infrastructure reasons. ``confirmed`` is
    the number of cases that timed out, perhaps because of the machine's load, and ran again with
    the sandbox to themselves; ``flipped`` of them then finished in time. ``code`` is None if
    nothing was run, if SandboxFusion extracts the code (``submit``).
    ``shared_process`` says that function tests ran in the answer's process, where an answer can get
    at them: their values cannot cross between processes, or the method is not ``batch``.
    """

    final_status: FinalStatus
    detail: Annotated[VerdictDetail | str | None, Field(union_mode="left_to_right")] = None
    missing_module: str | None = None
    accepted: bool
    pass_ratio: float = Field(ge=0, le=1)
    cases_passed: int = Field(ge=0)
    cases_total: int = Field(ge=0)
    cases_not_run: int = Field(default=0, ge=0)
    case_codes: list[int] = Field(default_factory=list)
    total_judge_time: float = Field(ge=0)
    error_breakdown: dict[str, int] = Field(default_factory=dict)
    first_failed_case: FailedCase | None = None
    method: JudgeMethod
    checker: str
    attempts: int = 0
    infra_failures: list[InfraFailure] = Field(default_factory=list)
    cpu_time: float | None = Field(default=None, ge=0)
    peak_memory: int | None = Field(default=None, ge=0)
    confirmed: int = Field(default=0, ge=0)
    flipped: int = Field(default=0, ge=0)
    worker: str | None = None
    judged_at: float | None = None
    code: JudgedCode | None = None
    shared_process: bool = False

    @property
    def judged(self) -> bool:
        """Whether the status describes the answer rather than an infrastructure failure."""
        return self.final_status is not FinalStatus.API_ERROR

    @property
    def not_run_ratio(self) -> float:
        """Cases not run / cases: the exact pass ratio is at most this much above ``pass_ratio``."""
        return self.cases_not_run / self.cases_total if self.cases_total else 0.0
