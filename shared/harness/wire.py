"""Wire formats of calls that run many cases: the harness's own, and the HTTP API's.

``cases``, which runs in the sandbox, documents the harness's specification and results.
``POST /run_cases`` of this project's sandbox takes a ``RunCasesRequest`` and returns a
``CallResult`` as JSON.
"""

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Literal, Self, cast

from pydantic import AfterValidator, Base64Bytes, BaseModel, Field, TypeAdapter, model_validator
from pydantic_core import PydanticKnownError

from shared.foreign_json import decode_json
from shared.harness.cases.files import CALL as CALL
from shared.harness.cases.files import FUNCTIONS as FUNCTIONS
from shared.harness.cases.files import NUMBERS, TIMES
from shared.harness.cases.files import RESULTS as RESULTS
from shared.harness.cases.supervisor import STRETCH as STRETCH
from shared.harness.languages import LANGUAGES

# Version of ``/run_cases``, which both sides must have.
RUN_CASES_VERSION = "6"
Limit = Literal["cpu", "wall", "output"]
Compiled = Literal["ok", "error", "missing", "timeout"]
End = Literal["done", "budget", "full", "timeouts", "compile", "lost"]
_MAC = 16
# Bytes of a call's records in addition to outputs: measurements and errors of the cases.
_RECORDS_SLACK = 16 * 1024 * 1024
# Limits of one call; of times in seconds.
MAX_SECONDS = 7 * 24 * 3600.0
MAX_INPUTS = 10_000


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticKnownError("string_unicode") from error
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A string without lone surrogates, which cannot be encoded as UTF-8."""


def _known(language: str) -> str:
    if language not in (*LANGUAGES, FUNCTIONS):
        raise ValueError(f"must be one of {', '.join((*LANGUAGES, FUNCTIONS))}")
    return language


Language = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra={"enum": [*LANGUAGES, FUNCTIONS]})
]
"""A name in the table of languages, or that of function tests."""


Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**62)]


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """Limits of each case and of the whole call.

    Attributes:
        cpu: CPU seconds after which a case is killed.
        wall: Wall-clock seconds after which it is killed. Time spent waiting for a processor is
            not counted, up to a total of ``STRETCH`` times the limit.
        compile: Seconds that the compiler may take.
        budget: Seconds after which no further case is started.
        memory: Bytes of address space.
        output: Bytes of standard output.
        processes: Processes and threads in addition to the first; 0 is no limit.
        timeouts: Number of time-outs after which no further case is started; 0 is no limit.
        results: Bytes of all outputs of a call. The case that exceeds it has no result, unless it
            is the first one.
    """

    cpu: Seconds
    wall: Seconds
    compile: Seconds
    budget: Seconds
    memory: Count
    output: Count
    processes: Count = 64
    timeouts: Count = 0
    results: Count = 16 * 1024 * 1024

    @property
    def call(self) -> float:
        """Longest time of a call in seconds."""
        return self.compile + self.budget + STRETCH * self.wall + 10


@dataclass(frozen=True, slots=True)
class CaseRun:
    """Result of one case, in seconds and bytes; ``exit_code`` is negative for a signal.

    ``cpu`` is all CPU time, ``user`` the part of it outside the kernel.
    """

    exit_code: int
    cpu: float
    user: float
    wall: float
    memory: int
    limit: Limit | None
    stdout: Base64Bytes  # in Python they are the bytes themselves
    stderr: str


@dataclass(slots=True)
class CallResult:
    """Results of one call; ``seconds`` is its wall-clock time in this project's sandbox.

    ``compile_seconds`` is the time until the program could run.
    ``cases`` is keyed by index of the input. ``end`` is None if the records are incomplete: the
    harness was killed, or another process changed its file.
    """

    compiled: Compiled | None = None
    compile_output: str = ""
    cases: dict[int, CaseRun] = field(default_factory=dict)
    end: End | None = None
    seconds: float = 0.0
    compile_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FunctionTests:
    """Tests that call functions of an answer, from another process than the answer's.

    Attributes:
        prelude: Source text that runs before the answer, in its process.
        setup: Source text that runs before the tests, in theirs.
        tests: Source texts, which share a namespace with ``setup``; or calls of the first function:
            arguments, expected result, convention (see ``function_results``).
        names: The answer's functions that the tests call; the first one replaces one of ``setup``.
            A method of ``Solution``, or else a function, has a dot before its name.
        modules: Modules that the tests use without an import.
        classes: Classes of ``setup`` and ``prelude``, whose instances cross as their fields.
        call_limits: CPU and wall-clock seconds of each call; empty if they have no limits of their
            own.
    """

    prelude: str
    setup: str
    tests: Sequence[str] | Sequence[tuple[str, str, str]]
    names: Sequence[str]
    modules: Sequence[str] = ()
    classes: Sequence[str] = ()
    call_limits: Sequence[float] = ()

    @property
    def payload(self) -> str:
        """Two lines, of which the answer may know the first: the prelude, and all the rest.

        Each is JSON in ASCII, because the tests may contain lone surrogates.
        """
        parts = (self.tests, self.names, self.modules, self.classes, self.call_limits)
        lists = [list(part) for part in parts]
        return f"{json.dumps(self.prelude)}\n{json.dumps([self.setup, *lists])}"


class FunctionEnd(StrEnum):
    """How function tests ended (see ``function_tester``)."""

    DONE = "done"
    LOST = "lost"
    LATE = "late"
    MISSING = "missing"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """Report of the tests' process: codes of the tests that ran, in order.

    Attributes:
        end: How they ended; None if the report is cut off.
    """

    codes: Sequence[int]
    end: FunctionEnd | None = None

    @property
    def lost(self) -> bool:
        """Whether the answer's process ended before its tests did."""
        return self.end is FunctionEnd.LOST

    @classmethod
    def decode(cls, report: bytes) -> "FunctionReport":
        """Decode the output of a case of function tests, which may be cut off."""
        *codes, end = report.decode("ascii").split("\n")
        return cls([int(code) for code in codes], FunctionEnd(end) if end else None)


class RunCasesRequest(BaseModel):
    """Request to run a program on many inputs, each in a process of its own.

    An input of the language ``functions``, which is Python, is a ``FunctionTests.payload``. All
    have the same prelude.
    """

    code: Text
    language: Language = "python"
    inputs: Annotated[list[Text], Field(max_length=MAX_INPUTS, fail_fast=True)]
    limits: CaseLimits

    @model_validator(mode="after")
    def _has_prelude(self) -> Self:
        _ = self.prelude
        return self

    @property
    def prelude(self) -> str:
        """Source text before an answer whose functions are tested; empty for programs.

        Raises:
            ValueError: The inputs have none.
        """
        if self.language != FUNCTIONS:
            return ""
        prelude = decode_json(self.inputs[0].partition("\n")[0]) if self.inputs else None
        if not isinstance(prelude, str):
            raise ValueError("the first line of inputs of functions must be a string in JSON")
        return prelude


CALL_RESULT = TypeAdapter(CallResult)


def encode_call(request: RunCasesRequest) -> bytes:
    """Encode all of a call but its inputs, which the answer's processes must not know."""
    answer, limits, inputs = request.code.encode(), request.limits, request.inputs
    prelude = request.prelude.encode("utf-8", "replace")
    values = [getattr(limits, name) for name in (*TIMES, *NUMBERS)]
    sizes = [len(text) for text in (answer, prelude, *map(str.encode, inputs))]
    line = " ".join(map(str, (request.language, *values, *sizes)))
    return b"%s\n%s%s" % (line.encode(), answer, prelude)


def longest_results(limits: CaseLimits) -> int:
    """Return a limit of the bytes of all records of a call."""
    return limits.results + limits.output + _RECORDS_SLACK


def verified(data: bytes, key: bytes) -> bytes:
    """Return the records in a results file; none if another process wrote it."""
    mac, _, records = data.partition(b"\n")
    digest = blake2b(records, key=key, digest_size=_MAC).hexdigest()
    return records if hmac.compare_digest(digest.encode(), mac) else b""


def decode_results(data: bytes) -> CallResult:
    """Decode the records up to the first one that is cut off."""
    result, start = CallResult(), 0
    while (line_end := data.find(b"\n", start)) >= 0:
        words = data[start:line_end].decode("ascii").split(" ")
        middle = line_end + 1 + int(words[-2])
        start = middle + int(words[-1]) + 1
        if start > len(data):
            break
        _add_record(result, words, data[line_end + 1 : middle], data[middle : start - 1])
    return result


def _add_record(result: CallResult, words: list[str], out: bytes, err: bytes) -> None:
    kind = words[0]
    if kind == "compile":
        result.compiled = cast(Compiled, words[1])
        result.compile_output = (out + err).decode("utf-8", "replace")
        result.compile_seconds = int(words[2]) / 1e6
    elif kind == "end":
        result.end = cast(End, words[1])
    else:
        index, *codes, cpu, user, wall, memory = map(int, words[1:-3])
        if kind == "tests":  # exit codes of the answer and the tests, then the tests' report
            out, _, err = out.partition(b"\n\n")
            lost = codes[1] == 0 and out.endswith(FunctionEnd.LOST.encode())
            codes = codes[:1] if lost else codes[1:]
        result.cases[index] = CaseRun(
            exit_code=codes[0],
            cpu=cpu / 1e6,
            user=user / 1e6,
            wall=wall / 1e6,
            memory=memory * 1024,
            limit=None if words[-3] == "-" else cast(Limit, words[-3]),
            stdout=out,
            stderr=err.decode("utf-8", "replace"),
        )
