"""Compile an answer once, and run it on each input in a new process.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import os
import resource
import sys
import time

from shared.harness.cases import processes, syscalls
from shared.harness.cases.files import (
    FUNCTIONS,
    PYTHON,
    CallSpec,
    CaseFolder,
    Records,
    SharedFolder,
    copy,
)
from shared.harness.cases.program import Program, flush, hide_modules, imported
from shared.harness.cases.streams import (
    HEAD,
    MAX_STDERR,
    EndOfOutput,
    FiledOutput,
    Streams,
    reopen_input,
    wants_pipe,
)
from shared.harness.cases.supervisor import Ended, Run, Supervisor
from shared.harness.languages import LANGUAGES, PROGRAM, Language, make_archive

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    import types
    from collections.abc import Sequence
    from typing import NoReturn

    # The words of its record, the bytes of its output, its errors.
    Outcome = tuple[Sequence[object], int, bytes]

# Limits of the compiler, in bytes: memory of each of its processes, and of each file that it writes
# (a large initialized array is as large in the program).
COMPILER_MEMORY, COMPILER_FILE = 2 << 30, 256 << 20
COMPILER_MISSING = 127
# More than the number of any descriptor of the parent.
HIGHEST = 1024


class Cases(Supervisor):
    """The cases of an answer, each in a child of this process, which executes none of its code.

    Neither inputs nor expected results get into this process's memory, which each case inherits:
    the kernel copies an input from one file to another.

    Args:
        folder: A folder for this call alone.
        user: The user of the cases; None for this process's own.
        confinement: Restricts this process, and with it all cases.
        shared: Folders that cases can write to and that outlive them.
        files: Descriptors of the call (specification, answer, prelude), its inputs, its results.
    """

    def __init__(
        self,
        folder: str,
        user: int | None,
        confinement: syscalls.Confinement,
        shared: Sequence[SharedFolder],
        files: Sequence[int],
    ) -> None:
        super().__init__()
        self.folder = folder
        self.user = user
        self.confinement = confinement
        self.shared = [*shared, SharedFolder(folder, [folder + "/case", folder + "/" + PROGRAM])]
        self.call, self.inputs, results = files
        self.records = Records(results)
        self.printed = os.memfd_create("out")
        self.warned = b""
        self.program: Program | None = None
        self.functions: types.ModuleType | None = None
        self.limits: list[tuple[int, tuple[int, int]]] = []

    def serve(self) -> Program:
        """Run the cases; returns in each of them, never in this process."""
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        # Otherwise an answer could write to our descriptors.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        leave_streams()
        self.confinement.enter_program(self.folder)
        self.began = time.monotonic()
        with open(self.call, "rb") as file:
            self.spec = CallSpec(file.readline())
            self.source = file.read(self.spec.answer)
            self.prelude = file.read(self.spec.prelude)
        if self.spec.language == FUNCTIONS:
            from shared.harness import functions  # it need not be there otherwise

            self.functions = functions
        try:
            ended = self.run_all() if self.compile() else "compile"
            if isinstance(ended, Program):
                return ended
            self.records.add("end", ended)
        except (OSError, ValueError):
            self.records.add("end", "lost")
        os._exit(0)

    def run_all(self) -> str | Program:
        """Run the cases; returns how the call ended, in a case its program."""
        late = start = 0
        for index, size in enumerate(self.spec.inputs):
            if index and time.monotonic() - self.began > self.spec.times["budget"]:
                return "budget"
            if not self.freshen() and index:
                return "full"  # the other cases get a call of their own
            ended = self.run(index, start, size)
            if isinstance(ended, Program) or ended in ("full", "lost"):
                return ended
            start += size
            late += ended in ("cpu", "wall")
            if late == self.spec.numbers["timeouts"] > 0:
                return "timeouts"
        return "done"

    def freshen(self) -> bool:
        """Remove what the last case left in folders.

        Returns whether that worked and a compiled program is unchanged.
        """
        try:
            for folder in self.shared:
                folder.restore()
            self.case.restore()
        except OSError:  # a folder that was locked, where nobody can change attributes
            return False
        return self.installed == self.installed_now()

    def installed_now(self) -> object:
        """Return what changes with a compiled program, which only its owner may make writable."""
        try:
            program = os.lstat(self.folder + "/" + PROGRAM)
        except FileNotFoundError:
            return None
        return program.st_ino, program.st_mode, program.st_ctime_ns

    def run(self, index: int, start: int, size: int) -> str | Program:
        """Run a case on a part of the inputs.

        Returns the limit that it exceeded, ``-``, ``lost`` if processes of it are left, or ``full``
        if the results of a call exceed theirs: then it has no result, and runs again as the first
        one of another call. In the case itself returns its program.
        """
        self.ended = Ended()
        os.ftruncate(self.printed, 0)
        os.lseek(self.printed, 0, os.SEEK_SET)
        run = (self.functions.FunctionCase if self.functions else Case)(self, start, size)
        program = run.start()
        if program is not None:
            return program
        reason = self.wait(run)
        run.stop()
        if reason == "ended" and self.ended.codes.get(run.pid, -1) >= 0:
            self.linger(run)
        processes.kill(os.killpg, run.pid, syscalls.SIGKILL)
        clean = self.sweep()
        run.close()
        (kind, *words), printed, errors = run.outcome()
        # The sandbox may limit the size of files; a record is a little longer than its output.
        longest = syscalls.within(resource.RLIMIT_FSIZE, 1 << 40) - 16384
        most = min(self.spec.numbers["results"], longest)
        if index and self.records.size + printed > most:
            return "full"
        self.records.add(kind, index, *words, out=self.printed, size=printed, err=errors)
        return str(words[-1]) if clean else "lost"

    # The compiler

    def compile(self) -> bool:
        """Compile the answer and prepare for its cases; returns whether it is a program.

        Beyond the limit of time this process ends by SIGALRM.
        """
        spec = self.spec
        language = LANGUAGES.get(spec.language, LANGUAGES[PYTHON])
        self.language = None if spec.language in (PYTHON, FUNCTIONS) else language
        self.case = CaseFolder(self.folder, language, self.source, self.user)
        self.case.restore()
        self.pipe = wants_pipe(self.source)
        _signal.setitimer(_signal.ITIMER_REAL, max(spec.times["compile"], 1e-6))
        if self.language is None:
            kind, text = self.compile_python()
        else:
            kind, text = self.run_compiler(self.language)
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        seconds = time.monotonic() - self.began
        self.records.add("compile", kind, int(seconds * 1e6), err=text)
        self.confinement.fix_attributes()
        self.installed = self.installed_now()
        tasks = spec.numbers["processes"]
        if self.user is None and tasks > 0:
            tasks += processes.tasks_of_user() + (spec.language == FUNCTIONS)  # the tests' process
        numbers = {**spec.numbers, "processes": tasks}
        self.limits = case_limits(spec.times["cpu"], numbers, self.language)
        gc.freeze()  # keeps pages shared with the children (copy on write)
        if self.language is None and kind == "ok":
            self.program = self.prepare_program()
        return kind == "ok"

    def prepare_program(self) -> Program:
        """Make the program with streams of the same kinds as it will have."""
        if self.functions:
            program = Program(self.code, self.case.program, streams=False)
            program.serve(self.functions.function_server, self.prelude, self.source)
            return program
        streams = self.streams(0, 0, EndOfOutput(0))
        for fd, end in enumerate(streams.ends):
            os.dup2(end, fd)
        streams.close_ends()
        program = Program(self.code, self.case.program)
        streams.finish()
        leave_streams()
        return program

    def streams(self, start: int, size: int, errors: EndOfOutput) -> Streams:
        """Make streams for a case with a part of the inputs."""
        source = os.memfd_create("in")
        copy(self.inputs, source, start, size)
        out = FiledOutput(self.printed, self.spec.numbers["output"])
        streams = Streams(source, self.pipe, out, errors)
        if self.user is not None:
            for fd in streams.ends:
                os.fchown(fd, self.user, self.user)  # so that /dev/stdout can be opened anew
        return streams

    def compile_python(self) -> tuple[str, bytes]:
        path = "<answer>" if self.spec.language == FUNCTIONS else self.case.program
        warnings = os.memfd_create("err")
        os.dup2(warnings, 2)
        os.close(warnings)
        try:
            self.code = compile_answer(self.source, path)
        except SourceError as error:
            return "error", error.text
        self.warned = os.pread(2, MAX_STDERR, 0)
        leave_streams()
        load_modules(self.source, self.prelude)
        return "ok", b""

    def run_compiler(self, language: Language) -> tuple[str, bytes]:
        """Run the compiler in the folder of the cases, and move the program out of it."""
        errors = os.memfd_create("err")
        command = language.compiler(self.case.file)
        pid = os.fork()
        if pid == 0:
            for fd in (1, 2):
                os.dup2(errors, fd)
            os.chdir(self.case.path)  # messages then have the file's name without its folder
            os.environ["TMPDIR"] = self.case.path
            os.environ.update(language.variables(self.case.path, COMPILER_MEMORY))
            memory = resource.RLIMIT_AS if language.name == "cpp" else resource.RLIMIT_DATA
            syscalls.limit(memory, COMPILER_MEMORY)
            syscalls.limit(resource.RLIMIT_FSIZE, COMPILER_FILE)
            syscalls.limit(resource.RLIMIT_CORE, 0)
            self.confinement.enter_user()
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
            try:
                os.execvp(command[0], command)
            except OSError as error:
                words = command[0], error, language.packages
                os.write(2, ("cannot start %s: %s; install %s\n" % words).encode())
                os._exit(COMPILER_MISSING)
        _, status = os.waitpid(pid, 0)
        text = os.pread(errors, MAX_STDERR, 0)
        os.close(errors)
        if status == 0:
            self.install(language)
        missing = os.WIFEXITED(status) and os.WEXITSTATUS(status) == COMPILER_MISSING
        return "ok" if status == 0 else "missing" if missing else "error", text

    def install(self, language: Language) -> None:
        """Move what the compiler made out of the cases' reach."""
        made, program = self.case.path + "/" + PROGRAM, self.folder + "/" + PROGRAM
        if language.classes:
            make_archive(self.case.path, self.case.file, made)
        if not os.path.exists(made):
            return
        move_program(made, program)
        if self.user is not None:
            os.chown(program, 0, 0)
        os.chmod(program, 0o555)

    # In a case

    def enter_case(self) -> None:
        """Turn this fork, which has its descriptors, into a process of the answer."""
        os.chdir(self.case.path)
        for kind, value in self.limits:
            resource.setrlimit(kind, value)
        self.confinement.enter_user()
        become_answer()

    def become_program(self, language: Language) -> NoReturn:
        for number in (syscalls.SIGPIPE, syscalls.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        program = self.folder + "/" + PROGRAM
        memory = self.spec.numbers["memory"]
        command = language.program(self.case.file, program, memory)
        os.environ.update(language.variables(self.case.path, memory))
        name = "./" + PROGRAM if command[0] == program else command[0]
        try:
            os.execvp(command[0], [name, *command[1:]])
        except OSError as error:
            os.write(2, ("cannot start the program: %s\n" % error).encode())
        os._exit(126)


class Case(Run):
    """A case: the program on a part of the inputs as its standard input."""

    def __init__(self, cases: Cases, start: int, size: int) -> None:
        times = cases.spec.times
        super().__init__(times["wall"], cases.ended, times["cpu"])
        self.cases = cases
        self.errors = EndOfOutput(HEAD if cases.language else 0)
        self.streams: Streams = cases.streams(start, size, self.errors)

    def start(self) -> Program | None:
        """Start it; returns its program in the new process."""
        program = self.fork(self.become_case)
        if program is None:
            self.streams.close_ends()
        return program

    def become_case(self) -> Program:
        cases = self.cases
        cases.leave()
        for fd, end in enumerate(self.streams.ends):
            os.dup2(end, fd)
        if not cases.pipe:
            reopen_input(self.streams.ends[0])
        os.closerange(3, HIGHEST)
        cases.enter_case()
        if cases.program is None:
            assert cases.language is not None
            cases.become_program(cases.language)
        if cases.warned:
            os.write(2, cases.warned)
        return cases.program

    def delayed(self) -> Sequence[int]:
        return (self.pid,)

    def outcome(self) -> Outcome:
        printed = 0 if self.full else os.fstat(self.cases.printed).st_size
        words = ("case", self.exit_code(self.pid), *self.measured())
        return words, printed, bytes(self.errors.data)


class SourceError(Exception):
    """The compiler rejects the answer; ``text`` is its message."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text


def compile_answer(source: bytes, path: str) -> types.CodeType:
    """Compile an answer; warnings are in the standard error then.

    Raises:
        SourceError: It is no program.
    """
    try:
        code: types.CodeType = compile(source, path, "exec", dont_inherit=True)
    except Exception as error:
        import traceback

        lines = traceback.format_exception_only(type(error), error)
        raise SourceError("".join(lines).encode("utf-8", "backslashreplace")) from None
    flush(sys.stderr)
    return code


def load_modules(source: bytes, prelude: bytes) -> None:
    """Load what an answer imports at its top, before its limits hold; hide our own."""
    for name in imported(prelude + b"\n" + source):
        try:
            __import__(name)
        except Exception:
            pass  # the answer will get the same error
    hide_modules()


def leave_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def become_answer() -> None:
    """Keep this process from signalling others, and from outliving its parent."""
    syscalls.scope_signals()
    # The change of the user undoes it.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    syscalls.renew()


def case_limits(
    cpu: float, numbers: dict[str, int], compiled: Language | None = None
) -> list[tuple[int, tuple[int, int]]]:
    """Return the resource limits of a case's process; 0 is no limit of memory or processes."""
    memory, tasks = numbers["memory"], numbers["processes"]
    limits = [
        # At least a second more than the supervisor's limit: a fallback if many threads exceed that
        # before the supervisor notices.
        (resource.RLIMIT_CPU, int(cpu) + 2),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, numbers["output"]),
    ]
    if tasks > 0:
        threads = compiled.threads if compiled is not None else 0
        limits.append((resource.RLIMIT_NPROC, tasks + threads))
    if memory > 0:
        data = memory if compiled is None else compiled.data_limit(memory)
        limits.append((resource.RLIMIT_DATA, data))
        if compiled is None or compiled.runtime_mib is None:
            limits.append((resource.RLIMIT_AS, memory))
        if compiled is not None and compiled.stack_mib:
            limits.append((resource.RLIMIT_STACK, compiled.stack(memory)))
    return [(kind, (syscalls.within(kind, value),) * 2) for kind, value in limits]


def move_program(made: str, program: str) -> None:
    """Move a compiled program to its place; where ``chmod`` has no effect, copy it."""
    if os.access(made, os.X_OK):
        os.rename(made, program)
        return
    fd = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
    with open(made, "rb") as source, open(fd, "wb") as target:
        target.write(source.read())
