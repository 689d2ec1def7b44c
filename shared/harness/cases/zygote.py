"""Zygote: compiles the answer once and forks a child per case.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket  # socket itself takes milliseconds to load
import gc
import os
import resource
import sys

from shared.harness.cases import syscalls
from shared.harness.cases.folders import memory_file, write_all
from shared.harness.cases.processes import exit_code, sweep, tasks_of_user
from shared.harness.cases.program import Program, flush, hide_modules, imported
from shared.harness.cases.records import FUNCTIONS, PYTHON
from shared.harness.cases.streams import MAX_STDERR, Streams, reopen_input
from shared.harness.languages import LANGUAGES, PROGRAM, Language

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    import types
    from typing import NoReturn


# Limits of the compiler, in bytes: memory of each of its processes, and of each file that it writes
# (a large initialized array is as large in the program).
COMPILER_MEMORY, COMPILER_FILE = 2 << 30, 256 << 20
COMPILER_MISSING = 127
# In the constants of a Java class with ``static void main(String[])``.
MAIN = (b"\x00\x04main", b"([Ljava/lang/String;)V")


class Zygote:
    """Compiles the answer once and forks a child per case (see the module docstring)."""

    def __init__(
        self,
        folder: str,
        user: int | None,
        forked: int,
        requests: _socket.socket,
        replies: int,
        confinement: syscalls.Confinement,
    ) -> None:
        self.confinement = confinement
        self.folder = folder
        self.case = folder + "/case"
        self.user = user
        self.forked = forked
        self.requests = requests
        self.replies = replies
        self.warned = b""
        self.program: Program | None = None
        self.compiled: Language | None = None  # of a program that is not one of this interpreter
        self.file = "solution.py"
        self.limits: list[tuple[int, tuple[int, int]]] = []

    def serve(self) -> Program:
        """Fork children; returns in each of them, never in the zygote."""
        os.setpgid(0, 0)  # a compiler that takes too long is killed together with the zygote
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        # Otherwise an answer could send the supervisor any reply.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        self.leave_streams()
        line, _, self.source = self.next_request().partition(b"\n")
        words = line.decode().split()
        self.language = words[0]
        self.cpu = float(words[1])
        self.memory, self.output, self.processes, self.pipe, size, prelude = map(int, words[2:])
        while len(self.source) < size + prelude:
            self.source += self.read(65536)
        self.source, self.prelude = self.source[:size], self.source[size:]
        if self.language == FUNCTIONS:
            from shared.harness import function_server  # it need not be there otherwise

            self.server = function_server
        if self.language not in (PYTHON, FUNCTIONS):
            self.compiled = LANGUAGES[self.language]
            self.file = self.compiled.file_of(self.source.decode("utf-8", "replace"))
        kind, text = self.compile_python() if self.compiled is None else self.compile(self.compiled)
        self.confinement.fix_attributes()
        write_all(self.replies, b"%s %d\n%s" % (kind, len(text), text))
        if self.user is None and self.processes > 0:
            self.processes += tasks_of_user() + (self.language == FUNCTIONS)  # the tester
        self.limits = case_limits(self.cpu, self.memory, self.output, self.processes, self.compiled)
        gc.freeze()  # keeps pages shared with the children (copy on write)
        if self.compiled is None and kind == b"ok":
            self.program = self.prepare_program()
        while True:
            streams = self.next_case()
            pid = syscalls.fork()
            if pid == 0:
                return self.child(streams)
            for fd in streams:
                os.close(fd)
            os.pwrite(self.forked, b"%20d %20d" % (pid, 0), 0)  # unlike a pipe, it wakes nobody
            self.report_end(pid)

    def report_end(self, pid: int) -> None:
        """Wait for a case and the orphans that it leaves; report its end."""
        user = system = 0.0
        ended = None
        while ended != pid:
            ended, status, usage = os.wait4(-1, 0)
            user += usage.ru_utime
            system += usage.ru_stime
            os.pwrite(self.forked, b"%20d %20d" % (pid, (user + system) * 1e6), 0)
        clean, swept, swept_system = sweep(pid, os.WIFEXITED(status))
        user += swept
        cpu = user + system + swept_system
        times, rest = (cpu * 1e6, user * 1e6), b"clean" if clean else b"unclean"
        words = (exit_code(status), *times, usage.ru_maxrss, rest)
        write_all(self.replies, b"%d %d %d %d %s\n" % words)

    def prepare_program(self) -> Program:
        """Make the program with streams of the same kinds as it will have."""
        if self.language == FUNCTIONS:
            program = Program(self.code, self.case + "/solution.py", streams=False)
            program.serve(self.server, self.prelude, self.source)
            return program
        streams = Streams(self.folder, b"", bool(self.pipe), None, 0)
        for fd, given in enumerate(streams.given):
            os.dup2(given, fd)
        streams.close_given()
        program = Program(self.code, self.case + "/solution.py")
        streams.finish()
        self.leave_streams()
        return program

    @staticmethod
    def leave_streams() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)

    def next_request(self) -> bytes:
        """Read a line; the first one is followed by the source, a part of which may be included."""
        data = b""
        while b"\n" not in data:
            data += self.read(4096)
        return data

    def next_case(self) -> list[int]:
        """Wait for the next case.

        Returns its streams, then the channel of an answer's functions: calls to read, results to
        write.
        """
        data, messages, _, _ = self.requests.recvmsg(16, _socket.CMSG_SPACE(20))
        if not data:
            os._exit(0)
        sent = messages[0][2]
        places = range(0, len(sent), 4)
        return [int.from_bytes(sent[at : at + 4], sys.byteorder) for at in places]

    def read(self, size: int) -> bytes:
        data = self.requests.recv(size)
        if not data:
            os._exit(0)
        return data

    def compile_python(self) -> tuple[bytes, bytes]:
        path = "<answer>" if self.language == FUNCTIONS else self.case + "/solution.py"
        warnings = memory_file(self.folder, "err")
        os.dup2(warnings, 2)
        os.close(warnings)
        try:
            self.code = compile_answer(self.source, path)
        except SourceError as error:
            return b"error", error.text
        self.warned = os.pread(2, MAX_STDERR, 0)
        self.leave_streams()
        load_modules(self.source, self.prelude)
        return b"ok", b""

    def compile(self, language: Language) -> tuple[bytes, bytes]:
        """Run the compiler in the folder of the cases, and move the program out of it."""
        errors = memory_file(self.folder, "err")
        command = language.compiler(self.file)
        pid = os.fork()
        if pid == 0:
            for fd in (1, 2):
                os.dup2(errors, fd)
            os.chdir(self.case)  # messages then have the file's name without its folder
            os.environ["TMPDIR"] = self.case
            os.environ.update(language.variables(self.case, COMPILER_MEMORY))
            memory = resource.RLIMIT_AS if language.name == "cpp" else resource.RLIMIT_DATA
            syscalls.limit(memory, COMPILER_MEMORY)
            syscalls.limit(resource.RLIMIT_FSIZE, COMPILER_FILE)
            syscalls.limit(resource.RLIMIT_CORE, 0)
            self.confinement.enter_user()
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
        return b"ok" if status == 0 else b"missing" if missing else b"error", text

    def install(self, language: Language) -> None:
        """Move what the compiler made out of the cases' reach."""
        made, program = self.case + "/" + PROGRAM, self.folder + "/" + PROGRAM
        if language.classes:
            make_archive(self.case, self.file, made)
        if not os.path.exists(made):
            return
        install(made, program)
        if self.user is not None:
            os.chown(program, 0, 0)
        os.chmod(program, 0o555)

    def child(self, streams: list[int]) -> Program:
        os.setsid()
        for fd, given in enumerate(streams[:3]):
            os.dup2(given, fd)
        if not self.pipe:
            reopen_input(streams[0])
        kept = keep(streams[3:])
        last = max(self.requests.detach(), self.replies, self.forked, *streams)
        os.closerange(3 + kept, 3 + last)
        os.chdir(self.case)
        for kind, value in self.limits:
            resource.setrlimit(kind, value)
        self.confinement.enter_user()
        syscalls.scope_signals()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        if self.program is None:
            assert self.compiled is not None
            self.become_program(self.compiled)
        if self.warned:
            os.write(2, self.warned)
        syscalls.renew()
        return self.program

    def become_program(self, language: Language) -> NoReturn:
        for number in (syscalls.SIGPIPE, syscalls.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        program = self.folder + "/" + PROGRAM
        command = language.program(self.file, program, self.memory)
        os.environ.update(language.variables(self.case, self.memory))
        name = "./" + PROGRAM if command[0] == program else command[0]
        try:
            os.execvp(command[0], [name, *command[1:]])
        except OSError as error:
            os.write(2, ("cannot start the program: %s\n" % error).encode())
        os._exit(126)


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


def case_limits(
    cpu: float, memory: int, output: int, processes: int, compiled: Language | None = None
) -> list[tuple[int, tuple[int, int]]]:
    """Return the resource limits of a case's process; 0 is no limit of memory or processes."""
    limits = [
        # At least a second more than the supervisor's limit: a fallback if many threads exceed that
        # before the supervisor notices.
        (resource.RLIMIT_CPU, int(cpu) + 2),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, output),
    ]
    if processes > 0:
        threads = compiled.threads if compiled is not None else 0
        limits.append((resource.RLIMIT_NPROC, processes + threads))
    if memory > 0:
        data = memory if compiled is None else compiled.data_limit(memory)
        limits.append((resource.RLIMIT_DATA, data))
        if compiled is None or compiled.runtime_mib is None:
            limits.append((resource.RLIMIT_AS, memory))
        if compiled is not None and compiled.stack_mib:
            limits.append((resource.RLIMIT_STACK, compiled.stack(memory)))
    return [(kind, (syscalls.within(kind, value),) * 2) for kind, value in limits]


def keep(channel: list[int]) -> int:
    """Give descriptors the first numbers after the standard streams; returns how many there are."""
    copies = [os.dup(fd) for fd in channel]  # the lowest free ones, in this order
    for place, fd in enumerate(copies):
        if fd != 3 + place:
            os.dup2(fd, 3 + place, inheritable=False)
    return len(copies)


def install(made: str, program: str) -> None:
    """Move a compiled program to its place; where ``chmod`` has no effect, copy it."""
    if os.access(made, os.X_OK):
        os.rename(made, program)
        return
    fd = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
    with open(made, "rb") as source, open(fd, "wb") as target:
        target.write(source.read())


def make_archive(folder: str, source: str, path: str) -> None:
    """Pack Java's class files below a folder into an archive that ``java -jar`` runs.

    The class that starts is ``Main``, the source's, or the first one, if it has a ``main``.
    """
    from zipfile import ZipFile  # slow to load

    classes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".class"):
                inner = os.path.relpath(os.path.join(parent, name), folder)
                with open(os.path.join(parent, name), "rb") as file:
                    classes[inner] = file.read()
    own = source.rpartition(".")[0]

    def order(inner: str) -> tuple[bool, bool, bool, str]:
        name = os.path.basename(inner)[: -len(".class")]
        return name != "Main", name != own, "$" in name, inner

    starts = [inner for inner, data in classes.items() if all(sign in data for sign in MAIN)]
    first = min(starts or ["Main.class"], key=order)[: -len(".class")].replace("/", ".")
    with ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Main-Class: %s\n" % first)
        for inner, data in classes.items():
            archive.writestr(inner, data)
