"""Entry point of a call that arrives as files in a folder.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os
import select
import sys

from shared.harness.cases import processes, syscalls
from shared.harness.cases.answer import Cases
from shared.harness.cases.files import CALL, RESULTS, PublicFolder, clear, write_all
from shared.harness.cases.program import Program
from shared.harness.cases.supervisor import Supervisor

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL first, several milliseconds
except ImportError:
    from hashlib import blake2b

# With a thread per core, each of which reserves address space, numpy would not fit into a case's
# memory on a large machine.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Seconds between two looks at a process that an answer may have stopped.
HEARTBEAT = 0.5
# Records of a program that took too long to compile.
LATE = b"compile timeout 0 0 0\n\nend compile 0 0\n\n"


def start(folder: str) -> Program:
    """Run the call whose files are in a folder, the script's; returns only in its cases.

    The process of the cases is forked before standard input is read. So neither the key nor the
    inputs are in the memory that the answer inherits.
    """
    if "PYTHONHASHSEED" not in os.environ:
        # Otherwise the order of sets of strings is random, and so is the verdict.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ.update(ONE_THREAD)
    user = syscalls.own_user(folder)
    if user is not None:
        os.chmod(folder, 0o711)
    shared = PublicFolder.all_of(user) if user is not None else []
    inputs = os.memfd_create("inputs")
    complete, filled = os.pipe()
    records, results = os.pipe()
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    pid = syscalls.fork()
    if pid == 0:
        os.setsid()
        for fd in (filled, records):
            os.close(fd)
        os.read(complete, 1)
        os.close(complete)
        files = os.open(folder + "/" + CALL, os.O_RDONLY), inputs, results
        return Cases(folder, user, syscalls.CallFilter(folder, user), shared, files).serve()
    for fd in (complete, results):
        os.close(fd)
    # Otherwise the answer could read the key from memory.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    with open(0, "rb", closefd=False) as stdin:
        key = bytes.fromhex(stdin.readline().decode())
        write_all(inputs, stdin.read())
    os.close(filled)
    text = read_records(records, pid)
    try:
        for place in shared:
            place.restore()
        clear(folder + "/case")  # the sandbox may fail to remove the answer's files
        clear(folder + "/" + RESULTS)
        with open(folder + "/" + RESULTS, "xb", 0) as file:
            mac = blake2b(text, key=key, digest_size=16).hexdigest()
            write_all(file.fileno(), b"%s\n%s" % (mac.encode(), text))
    except OSError:
        pass
    os._exit(0)


def read_records(records: int, pid: int) -> bytes:
    """Read the records of the cases' process to its end; no process of theirs is left then."""
    supervisor, text = Supervisor(), bytearray()
    while True:
        ready, _, _ = select.select([records], [], [], HEARTBEAT)
        data = os.read(records, 65536) if ready else b""
        text += data
        if (ready and not data) or processes.is_stopped(pid):
            break
    processes.kill_group(pid)
    supervisor.sweep()
    if supervisor.ended.codes.get(pid) == -syscalls.SIGALRM and not text:
        text += LATE
    return bytes(text)
