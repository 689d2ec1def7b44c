"""Entry points: a call with its files in a folder, and a call in a slot.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _socket  # socket itself takes milliseconds to load
import os
import resource
import sys

from shared.harness.cases import syscalls
from shared.harness.cases.folders import PublicFolder, SharedFolder, clear, memory_file
from shared.harness.cases.program import Program
from shared.harness.cases.records import ANSWER, RESULTS, Records, ResultsFile, RunSpec
from shared.harness.cases.supervisor import Supervisor
from shared.harness.cases.zygote import Zygote

# With a thread per core, each of which reserves address space, numpy would not fit into a case's
# memory on a large machine.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Sequence


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
    supervisor, program = fork_zygote(folder, user, (), syscalls.CallFilter(folder, user), shared)
    if program is not None:
        return program
    assert supervisor is not None
    # Otherwise the answer could read the key from memory.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    with open(folder + "/" + ANSWER, "rb") as file:
        answer = file.read()
    with open(0, "rb", closefd=False) as stdin:
        spec = RunSpec(stdin.read())
    results = ResultsFile(folder + "/" + RESULTS, spec.key)
    # The sandbox may limit the size of files; a record is a little longer than its output.
    longest = syscalls.within(resource.RLIMIT_FSIZE, 1 << 40) - 16384
    spec.max_results = min(spec.max_results, longest)
    supervisor.work(spec, answer, results)
    try:
        for place in shared:
            place.restore()
        clear(folder + "/case")  # the sandbox may fail to remove the answer's files
    except OSError:
        pass
    os._exit(0)


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
