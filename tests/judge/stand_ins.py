"""Stand-ins for sandboxes with rare faults: hanging, dropped connections, no compiler."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from services.judge.requests import Attempts, RunsCode, run_with_harness
from services.judge.sandbox import SandboxClient
from shared.harness import wire
from shared.harness.cases.records import CallSpec
from shared.harness.sandbox_api import CommandResult, RunCodeRequest, RunCodeResponse
from shared.harness.wire import CallResult, RunCasesRequest

_SPIKE = """\
import io, sys, time
sys.stdin = io.StringIO(sys.stdin.read())
if "slow" in sys.stdin.getvalue():
    time.sleep(60)
"""


class HarnessOnly:
    """A sandbox without ``/run_cases``."""

    async def run_cases(
        self: RunsCode, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        return await run_with_harness(self, request, attempts, alone=alone)


@dataclass
class Spiked(HarnessOnly):
    """The real sandbox on a crowded machine: cases with "slow" in their input stand still.

    By itself on the sandbox a call runs as ever.
    """

    real: SandboxClient
    calls: list[bool] = field(default_factory=list)

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        self.calls.append(alone)
        if not alone:
            head, _, program = base64.b64decode(request.files[wire.CALL]).partition(b"\n")
            program = _SPIKE.encode() + b"\n" + program
            words = head.split()
            words[10] = b"%d" % len(program)
            crowded = base64.b64encode(b" ".join(words) + b"\n" + program).decode()
            files = {**request.files, wire.CALL: crowded}
            request = request.model_copy(update={"files": files})
        return await self.real.run_code(request, attempts, alone=alone)


@dataclass
class Damaged(HarnessOnly):
    """The real sandbox, with records of which the harness loses some."""

    real: SandboxClient
    damage: Callable[[bytes], bytes]
    singles: list[RunCodeRequest] = field(default_factory=list)

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        if wire.RESULTS not in request.fetch_files:
            self.singles.append(request)
            return await self.real.run_code(request, attempts, alone=alone)

        response = await self.real.run_code(request, attempts, alone=alone)
        records = self.damage(response.file(wire.RESULTS).partition(b"\n")[2])
        response.files[wire.RESULTS] = base64.b64encode(signed(request, records)).decode()
        return response


@dataclass
class Scripted(HarnessOnly):
    """Gives each call the next list of records, the last one for ever; keeps what it was asked."""

    records: list[Sequence[tuple[object, ...]]]
    asked: list[RunCodeRequest] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        attempts.requests += 1
        self.asked.append(request)
        self.alone.append(alone)
        script = self.records.pop(0) if len(self.records) > 1 else self.records[0]
        return RunCodeResponse(
            message="",
            status="Success",
            run_result=CommandResult(status="Finished", return_code=0, execution_time=1.0),
            files={wire.RESULTS: base64.b64encode(_results(request, script)).decode()},
        )


def case(
    place: int,
    out: bytes = b"",
    *,
    code: int = 0,
    cpu: float = 0.1,
    user: float | None = None,
    wall: float = 0.1,
    limit: str = "-",
) -> tuple[object, ...]:
    """The record of a case; without ``user`` the kernel had no part in it."""
    times = (int(seconds * 1e6) for seconds in (cpu, cpu if user is None else user, wall))
    return ("case", place, code, *times, 9000, limit, out, b"")


def signed(request: RunCodeRequest, records: bytes) -> bytes:
    """Return the results file of a call with these records."""
    key = bytes.fromhex((request.stdin or "").partition("\n")[0])
    return b"%s\n%s" % (blake2b(records, key=key, digest_size=16).hexdigest().encode(), records)


def _results(request: RunCodeRequest, script: Sequence[tuple[object, ...]]) -> bytes:
    records = b""
    for record in script:
        *words, out, err = record if record[0] != "end" else (*record, b"", b"")
        assert isinstance(out, bytes)
        assert isinstance(err, bytes)
        head = " ".join(map(str, (*words, len(out), len(err))))
        records += b"%s\n%s%s\n" % (head.encode(), out, err)
    return signed(request, records)


@dataclass
class Simulated(HarnessOnly):
    """A sandbox in which each case does what its input says; see ``BEHAVIOURS``.

    Attributes:
        per_call: Cases after which a call ends and leaves the rest to the next one.
        ran: Inputs of all cases that ran, in order, those of second runs included.
    """

    per_call: int = 1000
    ran: list[str] = field(default_factory=list)

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        if wire.RESULTS in request.fetch_files:
            return await Scripted([list(self._harness(request, alone))]).run_code(request, attempts)
        self.ran.append(request.stdin or "")
        return self._single(_behaviour(request.stdin or ""), alone)

    def _harness(self, request: RunCodeRequest, alone: bool) -> Iterator[tuple[object, ...]]:
        spec = CallSpec(base64.b64decode(request.files[wire.CALL] or "").partition(b"\n")[0])
        texts = io.BytesIO((request.stdin or "").encode())
        texts.readline()
        yield "compile", "ok", b"", b""
        late = 0
        for place, stdin in enumerate(texts.read(size).decode() for size in spec.inputs):
            if place == self.per_call:
                yield "end", "budget"
                return
            kind = _behaviour(stdin)
            if kind == "breaks":
                yield "end", "lost"
                return
            self.ran.append(stdin)
            record = _record(place, "passes" if alone and kind == "waits" else kind)
            yield record
            late += record[7] != "-"
            if late == spec.numbers["timeouts"] > 0:
                yield "end", "timeouts"
                return
        yield "end", "done"

    @staticmethod
    def _single(kind: str, alone: bool) -> RunCodeResponse:
        if kind in ("loops", "slow") or (kind == "waits" and not alone):
            late = CommandResult(status="TimeLimitExceeded", execution_time=1.0)
            return RunCodeResponse(message="", status="Failed", run_result=late)
        code, out = int(kind == "crashes"), "no" if kind == "fails" else "yes"
        run = CommandResult(status="Finished", return_code=code, execution_time=0.1, stdout=out)
        return RunCodeResponse(message="", status="Failed" if code else "Success", run_result=run)


# Of 1 CPU second. ``loops`` is killed; ``slow`` ends between its limit and the end of the grace;
# ``waits`` is stopped by the wall clock, and passes when it has the sandbox to itself; ``breaks``
# kills the harness, if there is one.
BEHAVIOURS = ("passes", "fails", "crashes", "loops", "slow", "waits", "breaks")


def _behaviour(stdin: str) -> str:
    return stdin.partition(" ")[0]


def _record(place: int, kind: str) -> tuple[object, ...]:
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
