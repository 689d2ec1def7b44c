"""Table of languages: everything that Plumbline knows about a language stands in its entry.

It runs in the sandbox too. Standard library and Python 3.8 syntax only.

A runtime that reserves more address space than it uses (``runtime_mib``) gets the memory limit as
its own limit of the heap. The kernel then limits what its processes can write to (RLIMIT_DATA), to
the memory limit and ``runtime_mib`` more. Other languages have a limit of the address space.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MIB = 1 << 20
# Heap of a program without a memory limit, in MiB.
DEFAULT_HEAP = 1024
# Stack of a program: this share of its memory, and at most so many MiB of a compiled program.
# Contests allow recursion that 8 MiB do not hold; a thread reserves as much.
STACK_SHARE, MAX_STACK = 8, 256
# A compiled program in the folder where it was compiled.
PROGRAM = "program"


class Language:
    """A language of programs that read standard input: an entry of the table."""

    name: str  # SandboxFusion's
    title: str  # its name in sentences
    labels: Sequence[str]  # of its code blocks, the usual one first
    file: str  # name of the source file
    # Pattern of sources that need a file name with what the pattern's group matched, that name, and
    # the match that counts before others.
    renamed: tuple[str, str] | None = None
    preferred: str = ""
    compile: Sequence[str] = ()  # command line of the compiler, or of a check of the syntax
    run: Sequence[str]  # that of the program, with {program}, {heap} (MiB), {stack} (KiB)
    environment: Mapping[str, str] = {}  # of both commands, with {heap} and {folder}
    tools: Sequence[str] = ()  # programs that must be installed
    packages: str = ""  # Debian's packages with these programs
    classes: bool = False  # whether the compiler makes Java's class files
    runtime_mib: int | None = None  # see above; None for a limit of the address space
    threads: int = 0  # of the runtime, in addition to the processes that a program may have
    stack_mib: int = 0  # most MiB of the stack; 0 for the system's
    seconds: float = 0.0  # CPU seconds in which the runtime surely starts
    idle: str = ""  # a program that does nothing
    hint: str = ""  # what a prompt says about compiling
    lexer: str  # Pygments' name, by default the language's
    begins: str = ""  # pattern of a line that can be the first of a program
    main: str = ""  # pattern of a whole program
    reads: str = ""  # pattern of a program that reads its input
    refused: Sequence[str] = ()  # texts on standard error of a program that got no memory
    multipl_e: Sequence[str] = ()  # MultiPL-E's names

    def __init__(self, name: str, title: str, labels: str, file: str, **more: object) -> None:
        self.name, self.title, self.file = name, title, file
        self.labels = labels.split()
        self.lexer = name
        for attribute, value in more.items():
            if attribute not in Language.__annotations__:
                raise TypeError(f"a language has no attribute {attribute}")
            setattr(self, attribute, value)

    def file_of(self, source: str) -> str:
        """Return the name that the file of a program must have."""
        if self.renamed is None:
            return self.file
        import re  # slow to load

        pattern, name = self.renamed
        found = re.findall(pattern, source, re.MULTILINE)
        if not found:
            return self.file
        return name.format(self.preferred if self.preferred in found else found[0])

    def compiler(self, file: str) -> list[str]:
        """Return the command line of the compiler in the folder of the source."""
        return [word.format(file=file) for word in self.compile]

    def program(self, file: str, program: str, memory: int) -> list[str]:
        """Return the command line of a compiled program, with its memory in bytes."""
        stack = self.stack(memory) or 8 * MIB
        # A runtime needs some of the stack for itself.
        values = {"heap": heap_of(memory), "stack": (stack - stack // 8) // 1024}
        return [word.format(file=file, program=program, **values) for word in self.run]

    def variables(self, folder: str, memory: int) -> dict[str, str]:
        """Return the variables for compiler and program."""
        values = {"heap": heap_of(memory), "folder": folder}
        return {name: value.format(**values) for name, value in self.environment.items()}

    def data_limit(self, memory: int) -> int:
        """Return the bytes that processes may write to, for a memory limit in bytes."""
        return memory + (self.runtime_mib or 0) * MIB

    def stack(self, memory: int) -> int:
        """Return the bytes of the stack of a program with so much memory; 0 for the system's."""
        return min(memory // STACK_SHARE, self.stack_mib * MIB)


def heap_of(memory: int) -> int:
    return memory // MIB or DEFAULT_HEAP


def installation(languages: Iterable[Language]) -> str:
    """Name the packages of languages, as ``java (default-jdk-headless), go (golang-go)``."""
    return ", ".join(f"{language.name} ({language.packages})" for language in languages)


_GO = {
    "environment": {
        "GOCACHE": "{folder}/.cache",
        "GOFLAGS": "",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        # Each of its processors may have a thread, and a share of the garbage collector's work.
        "GOMAXPROCS": "2",
        "GOMEMLIMIT": "{heap}MiB",
    },
    "tools": ("go",),
    "packages": "golang-go",
    "runtime_mib": 256,
    "threads": 16,
    "seconds": 0.1,
    "refused": ("runtime: out of memory", "runtime.(*mheap).grow("),
}
_JAVA = (
    "-Xmx{heap}m",
    # Of the first thread; others have Java's usual one.
    *("-Xss{stack}k", "-XX:ThreadStackSize=1024"),
    # Few threads, which the process limit counts, and no files of its own.
    *("-XX:+UseSerialGC", "-XX:ActiveProcessorCount=2", "-XX:-UsePerfData"),
    *("-XX:ErrorFile=/dev/null", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-ea"),
)

LANGUAGES = {
    one.name: one
    for one in (
        Language(
            "python",
            "Python 3",
            "python py ipython pypy",
            "solution.py",
            run=("python3", "{file}"),
            idle="pass",
        ),
        Language(
            "cpp",
            "C++17",
            "cpp c++ cc cxx cplusplus",
            "solution.cpp",
            compile=(
                *("g++", "-std=c++17", "-O2", "-fmax-errors=20"),
                *("-o", PROGRAM, "{file}"),
            ),
            run=("{program}",),
            tools=("g++",),
            packages="g++",
            stack_mib=MAX_STACK,
            idle="int main() {}",
            hint="It is compiled with g++ -std=c++17 -O2. ",
            begins=(
                r"#[ \t]*[a-z]|using\s+\w|typedef\b|template\s*<|(?:struct|class)\s+\w+[^.\n]*$"
                r"|(?:int|signed|void)\s+\w+\s*\(|//|/\*"
            ),
            main=r"^[ \t]*(?:(?:signed|int|auto|int32_t|void)\s+main\s*\(|main\s*\([^;\n]*$)",
            reads=r"\bcin\b|\bscanf|\bgetline\b|\bgetchar|\bstdin\b|\bfread\b|\bread\s*\(",
            multipl_e=("cpp",),
        ),
        Language(
            "java",
            "Java",
            "java",
            "Main.java",
            renamed=(
                r"^[ \t]*public[ \t]+(?:(?:final|abstract|strictfp|sealed)[ \t]+)*"
                r"(?:class|interface|enum|record)[ \t]+(\w+)",
                "{}.java",
            ),
            preferred="Main",
            compile=(
                *("javac", "-J-Xmx512m", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1"),
                *("-J-XX:ActiveProcessorCount=2", "-J-XX:-UsePerfData", "-encoding", "UTF-8"),
                *("-nowarn", "-proc:none", "-d", ".", "{file}"),
            ),
            run=("java", *_JAVA, "-jar", "{program}"),
            tools=("javac", "java"),
            packages="default-jdk-headless",
            classes=True,
            runtime_mib=1024,
            threads=24,
            stack_mib=64,
            seconds=1.0,
            idle="class Main { public static void main(String[] arguments) {} }",
            hint="Its class with main is Main. ",
            begins=r"(?:import|package|public|final|abstract|class|interface|enum|record|@\w)\b|//|/\*",
            main=r"\bstatic\s+(?:public\s+)?(?:final\s+)?void\s+main\s*\(",
            reads=r"\bSystem\s*\.\s*in\b",
            refused=(
                "OutOfMemoryError: Java heap space",
                "OutOfMemoryError: GC overhead",
                "OutOfMemoryError: Requested array size",
                "OutOfMemoryError: Cannot reserve",
                "error='Not enough space'",
                "insufficient memory for the Java Runtime",
            ),
            multipl_e=("java",),
        ),
        Language(
            "nodejs",
            "JavaScript (Node.js)",
            "javascript js nodejs node mjs cjs",
            "solution.js",
            # A module.
            renamed=(r"^[ \t]*(?:import[ \t]*[\w{*\"']|export[ \t])", "solution.mjs"),
            compile=("node", "--check", "{file}"),
            run=(
                *("node", "--max-old-space-size={heap}", "--stack-size={stack}"),
                *("--v8-pool-size=1", "{file}"),
            ),
            tools=("node",),
            packages="nodejs",
            runtime_mib=512,
            threads=16,
            stack_mib=64,
            seconds=0.5,
            lexer="javascript",
            begins=r"(?:['\"]use strict|const|let|var|function|class|import|async)\b|//|/\*|\(",
            main=r"\brequire\s*\(|^[ \t]*import\b[^\n]*\bfrom\b|\bprocess\s*\.\s*std(?:in|out)\b",
            reads=r"\bprocess\s*\.\s*stdin\b|/dev/stdin|\breadFileSync\s*\(\s*0\b|\breadline\b",
            refused=("heap out of memory", "Array buffer allocation failed"),
            multipl_e=("js",),
        ),
        Language(
            "rust",
            "Rust",
            "rust rs",
            "solution.rs",
            compile=(
                *("rustc", "--edition", "2021", "-C", "opt-level=2", "-A", "warnings"),
                *("-o", PROGRAM, "{file}"),
            ),
            run=("{program}",),
            tools=("rustc", "cc"),
            packages="rustc",
            stack_mib=MAX_STACK,
            idle="fn main() {}",
            hint="It uses the standard library alone. ",
            begins=r"(?:use|fn|mod|struct|enum|impl|trait|const|static|type|pub|extern)\b|//|/\*|#!?\[",
            main=r"\bfn\s+main\s*\(",
            reads=r"\bstdin\s*\(\s*\)",
            refused=("memory allocation of ",),
            multipl_e=("rs",),
        ),
        Language(
            "go",
            "Go",
            "go golang",
            "solution.go",
            compile=("go", "build", "-o", PROGRAM, "{file}"),
            run=("{program}",),
            idle="package main\nfunc main() {}",
            hint="It is one package main, and uses the standard library alone. ",
            begins=r"package\b|//|/\*",
            main=r"\bfunc\s+main\s*\(",
            reads=r"\bos\s*\.\s*Stdin\b|\bfmt\s*\.\s*Scan",
            **_GO,
        ),
        Language(
            "go_test",
            "Go",
            "go golang",
            "solution_test.go",
            compile=("go", "test", "-c", "-o", PROGRAM, "{file}"),
            # The flag with which ``go test`` notices an early exit.
            run=("{program}", "-test.paniconexit0"),
            idle='package main\nimport "testing"\nfunc TestNothing(t *testing.T) {}',
            lexer="go",
            multipl_e=("go", "go_test.go"),
            **_GO,
        ),
    )
}
# Those of programs that read standard input, in the order in which texts name them.
PROGRAMS = tuple(name for name in LANGUAGES if name != "go_test")
