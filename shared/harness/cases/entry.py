"""Entry points: a call with its files in a folder, and a call in a slot.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket  # socket itself takes milliseconds to load
import os
import resource
import select
import sys
import time

from shared.harness.cases import syscalls
from shared.harness.cases.folders import PublicFolder, SharedFolder, clear, memory_file, write_all
from shared.harness.cases.program import Program
from shared.harness.cases.records import ANSWER, LIMITS, RESULTS, Records, ResultsFile, RunSpec
from shared.harness.cases.supervisor import Supervisor
from shared.harness.cases.zygote import Zygote

# With a thread per core, each of which reserves address space, numpy would not fit into a case's
# memory on a large machine.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def start(folder: str) -> Program:
    """Run the call whose files are in a folder, the script's; returns only in its cases."""
    if "PYTHONHASHSEED" not in os.environ:
        # Otherwise the order of sets of strings is random, and so is the verdict.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ.update(ONE_THREAD)
    user = syscalls.own_user(folder)
    if user is not None:
        os.chmod(folder, 0o711)
    shared = PublicFolder.all_of(user) if user is not None else []
    confinement = syscalls.CallFilter(folder, user)
    if os.path.exists(folder + "/" + LIMITS):
        return run_functions(folder, user, confinement, shared)
    supervisor, program = fork_zygote(folder, user, (), confinement, shared)
    if program is not None:
        return program
    assert supervisor is not None
    # Otherwise the answer could read the key from memory.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    with open(folder + "/" + ANSWER, "rb") as file:
        answer = file.read()
    spec = read_spec()
    results = ResultsFile(folder + "/" + RESULTS, spec.key)
    spec.max_results = longest_results(spec.max_results)
    supervisor.work(spec, answer, results)
    remove_files(folder, shared)
    os._exit(0)


def run_functions(
    folder: str, user: int | None, confinement: syscalls.Confinement, shared: Sequence[SharedFolder]
) -> Program:
    """Run function tests whose files are in a folder; returns only in the answer's process."""
    import json  # slow to load

    from shared.harness import runs  # it need not be there otherwise
    from shared.harness.cases.zygote import Zygote

    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    with open(folder + "/" + LIMITS, "rb") as file:
        limits = json.loads(file.read())
    wake_out, wake_in = os.pipe()
    for fd in (wake_out, wake_in):
        os.set_blocking(fd, False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)

    def leave() -> None:
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        Zygote.leave_streams()
        os.setsid()

    with open(folder + "/" + ANSWER, "rb") as file:
        source = file.read()
    # No answer may have the tests in its memory: they go from one descriptor to another.
    tests = memory_file(folder, "tests")
    buffer = bytearray(65536)
    while (size := os.readv(0, [buffer])) > 0:
        with memoryview(buffer) as view:
            write_all(tests, view[:size])
    buffer[:] = bytes(len(buffer))

    def spec() -> RunSpec:
        return RunSpec(os.pread(tests, os.fstat(tests).st_size, 0))

    def payload() -> bytes:  # called in the tests' process
        return spec().inputs[len(records)]

    limits["results"] = longest_results(limits["results"])
    above = SharedFolder(folder, [])
    calls = runs.Calls(limits)
    reports = memory_file(folder, "reports")
    records: list[tuple[dict[str, Any], int]] = []  # with the sizes of their reports
    end = ""
    while not end and len(records) < limits["inputs"]:
        end = calls.before(len(records))
        if end:
            break
        for shared_folder in (*shared, above):
            shared_folder.restore()
        answer, report = memory_file(folder, "answer"), memory_file(folder, "report")
        write_all(answer, source)
        os.lseek(answer, 0, os.SEEK_SET)
        ended = runs.Ended()
        run = runs.Functions(limits, answer, report, payload, folder, ended, leave)
        run.user = user
        program = run.start(confinement)
        if program is not None:
            return program
        reason = ""
        while not reason:
            ended.reap()
            left = run.left(time.monotonic())
            if left <= 0:
                reason = "timeout"
            elif run.has_ended():
                reason = "ended"
            else:
                select.select([wake_out, *run.readers()], [], [], min(left, 60))
                runs.drain(wake_out)
                run.move()
        run.stop()
        clean = ended.sweep(wake_out, everything=False)
        run.close()
        case, size = run.result(reason)["case"], min(os.fstat(report).st_size, runs.MAX_REPORT)
        if case["compiled"] == "ok":
            end = calls.after(len(records), case["limit"], size)
        if end != "full":
            copied = 0
            while copied < size:
                copied += os.sendfile(reports, report, copied, size - copied)
            records.append((case, size))
        if case["compiled"] != "ok" or not clean:
            end = "compile" if case["compiled"] in ("error", "timeout") else "lost"
        os.close(answer)
        os.close(report)
    results = ResultsFile(folder + "/" + RESULTS, spec().key)
    os.lseek(reports, 0, os.SEEK_SET)
    for index, (case, size) in enumerate(records):
        words = json.dumps(case, separators=(",", ":"))
        results.add("functions", index, words, out=os.read(reports, size))
    results.add("end", end or "done")
    results.close()
    remove_files(folder, shared)
    os._exit(0)


def read_spec() -> RunSpec:
    with open(0, "rb", closefd=False) as stdin:
        return RunSpec(stdin.read())


def longest_results(most: int) -> int:
    """Return a limit of the outputs of a call, for a sandbox that limits the size of files."""
    # A record is a little longer than its output.
    return min(most, syscalls.within(resource.RLIMIT_FSIZE, 1 << 40) - 16384)


def remove_files(folder: str, shared: Sequence[SharedFolder]) -> None:
    """Remove the answer's files, which the sandbox may fail to do."""
    try:
        for place in shared:
            place.restore()
        clear(folder + "/case")
    except OSError:
        pass


def run_in_slot(
    folder: str,
    request: int,
    results: int,
    confinement: syscalls.Confinement,
    shared: Sequence[SharedFolder],
) -> Program:
    """Run the call that arrives on ``request``; returns only in its cases.

    The process must be a fresh fork of a slot's init, and not dumpable.

    Args:
        folder: An empty folder for this call alone.
        request: Descriptor to read: the size of the answer in a line, the answer, the
            specification. It is read only after the zygote is forked.
        results: Descriptor to write the records to.
        confinement: Restricts the zygote, and with it all cases.
        shared: Folders of the slot that cases can write to.
    """
    for root in shared:
        root.keep |= {folder}
    supervisor, program = fork_zygote(folder, None, (request, results), confinement, shared)
    if program is not None:
        return program
    assert supervisor is not None
    with open(request, "rb") as file:
        size = int(file.readline())
        answer = file.read(size)
        spec = RunSpec(file.read())
    supervisor.work(spec, answer, Records(results, spec.key))
    os._exit(0)


def fork_zygote(
    folder: str,
    user: int | None,
    private: tuple[int, ...],
    confinement: syscalls.Confinement,
    shared: Sequence[SharedFolder],
) -> tuple[Supervisor | None, Program | None]:
    """Fork the zygote; return the supervisor, or in each case its program.

    ``private`` are the supervisor's descriptors, which the zygote must not inherit.
    """
    forked = memory_file(folder, "pid")
    requests_out, requests_in = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    replies_out, replies_in = os.pipe()
    pid = syscalls.fork()
    if pid == 0:
        for fd in (requests_in.detach(), replies_out, *private):
            os.close(fd)
        confinement.enter_program(folder)
        zygote = Zygote(folder, user, forked, requests_out, replies_in, confinement)
        return None, zygote.serve()
    for fd in (requests_out.detach(), replies_in):
        os.close(fd)
    return Supervisor(folder, user, forked, requests_in, replies_out, pid, shared), None
