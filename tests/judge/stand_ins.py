"""Stand-ins for sandboxes with rare faults: hanging, lost harnesses, no compiler."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from services.judge.sandbox import Attempts, SandboxClient
from shared.harness.sandbox_api import CommandResult, RunCodeRequest, RunCodeResponse
from shared.harness.wire import CallResult, CaseRun, Limit, RunCasesRequest

Record = tuple[object, ...]
_SPIKE = """\
import io, sys, time
sys.stdin = io.StringIO(sys.stdin.read())
if "slow" in sys.stdin.getvalue():
    time.sleep(60)
"""


@dataclass
class Spiked:
    """The real sandbox on a crowded machine: cases with "slow" in their input stand still.

    By itself on the sandbox a call runs as ever.
    """

    real: SandboxClient
    calls: list[bool] = field(default_factory=list)

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        self.calls.append(alone)
        code = request.code if alone else f"{_SPIKE}\n{request.code}"
        crowded = request.model_copy(update={"code": code})
        return await self.real.run_cases(crowded, attempts, alone=alone)


@dataclass
class Damaged:
    """The real sandbox, with results of which the harness loses some."""

    real: SandboxClient
    damage: Callable[[CallResult], CallResult]

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        return self.damage(await self.real.run_cases(request, attempts, alone=alone))


@dataclass
class Scripted:
    """Gives each call the next list of records, then always the last; keeps the questions."""

    records: list[Sequence[Record]]
    asked: list[RunCasesRequest] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        attempts.requests += 1
        self.asked.append(request)
        self.alone.append(alone)
        return _result(self.records.pop(0) if len(self.records) > 1 else self.records[0])


def case(
    place: int,
    out: bytes = b"",
    *,
    code: int = 0,
    cpu: float = 0.1,
    user: float | None = None,
    wall: float = 0.1,
    limit: Limit | None = None,
) -> Record:
    """The record of a case; without ``user`` the kernel had no part in it."""
    user = cpu if user is None else user
    return "case", place, CaseRun(code, cpu, user, wall, 9000 * 1024, limit, out, "")


def _result(script: Sequence[Record]) -> CallResult:
    result = CallResult()
    for record in script:
        match record:
            case ["case", int(place), CaseRun() as run]:
                result.cases[place] = run
            case ["compile", compiled, bytes(out), bytes(err)]:
                result.compiled, result.compile_output = compiled, (out + err).decode()
            case ["end", end]:
                result.end = end
    return result


@dataclass
class Simulated:
    """A sandbox in which each case does what its input says; see ``BEHAVIOURS``.

    Attributes:
        per_call: Cases after which a call ends and leaves the rest to the next one.
        ran: Inputs of all cases that ran, in order, those of second runs included.
    """

    per_call: int = 1000
    ran: list[str] = field(default_factory=list)

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        attempts.requests += 1
        return _result(list(self._records(request, alone)))

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        self.ran.append(request.stdin or "")
        kind = _behaviour(request.stdin or "")
        if kind in ("loops", "slow") or (kind == "waits" and not alone):
            late = CommandResult(status="TimeLimitExceeded", execution_time=1.0)
            return RunCodeResponse(message="", status="Failed", run_result=late)
        code, out = int(kind == "crashes"), "no" if kind == "fails" else "yes"
        run = CommandResult(status="Finished", return_code=code, execution_time=0.1, stdout=out)
        return RunCodeResponse(message="", status="Failed" if code else "Success", run_result=run)

    def _records(self, request: RunCasesRequest, alone: bool) -> Iterator[Record]:
        yield "compile", "ok", b"", b""
        late = 0
        for place, stdin in enumerate(request.inputs):
            if place == self.per_call:
                yield "end", "budget"
                return
            kind = _behaviour(stdin)
            if kind == "breaks":
                yield "end", "lost"
                return
            self.ran.append(stdin)
            yield _record(place, "passes" if alone and kind == "waits" else kind)
            late += kind == "loops" or (kind == "waits" and not alone)
            if late == request.limits.timeouts > 0:
                yield "end", "timeouts"
                return
        yield "end", "done"


# Of 1 CPU second. ``loops`` is killed; ``slow`` ends between its limit and the end of the grace;
# ``waits`` is stopped by the wall clock, and passes when it has the sandbox to itself; ``breaks``
# kills the harness, if there is one.
BEHAVIOURS = ("passes", "fails", "crashes", "loops", "slow", "waits", "breaks")


def _behaviour(stdin: str) -> str:
    return stdin.partition(" ")[0]


def _record(place: int, kind: str) -> Record:
    if kind == "loops":
        return case(place, cpu=1.25, limit="cpu")
    if kind == "waits":
        return case(place, cpu=0.1, wall=3, limit="wall")
    if kind == "slow":
        return case(place, b"yes", cpu=1.1)
    return case(place, b"no" if kind == "fails" else b"yes", code=int(kind == "crashes"))


class WithoutCases(SandboxClient):
    """A client of this repository's sandbox as one of another SandboxFusion: by ``/run_code``."""

    async def _all_offer_cases(self) -> bool:
        return False
