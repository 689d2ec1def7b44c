"""Table of languages: everything that Plumbline knows about a language stands in its entry.

It runs in the sandbox too. Standard library and Python 3.8 syntax only.

A runtime that reserves more address space than it uses (``runtime_mib``) gets the memory limit as
its own limit of the heap. The kernel then limits what its processes can write to (RLIMIT_DATA), to
the memory limit and ``runtime_mib`` more. Other languages have a limit of the address space.
"""

from __future__ import annotations

import os

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
# Bytes of a file's name.
LONGEST_NAME = 255
# In the constants of a Java class with ``static void main(String[])``.
MAIN = (b"\x00\x04main", b"([Ljava/lang/String;)V")
# Attributes that are lists of words.
WORDS = ("labels", "compile", "run", "tools", "multipl_e")
# Comments, characters and strings of Java and JavaScript; an unclosed one ends with the source.
LITERAL = (
    r"//[^\n]*|/\*(?:.*?\*/|.*)|\"\"\"(?:.*?\"\"\"|.*)"
    r"|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?"
)


class Language:
    """A language of programs that read standard input: an entry of the table."""

    name: str  # SandboxFusion's
    title: str  # its name in sentences
    labels: Sequence[str]  # of its code blocks, the usual one first
    file: str  # name of the source file
    # Pattern of sources that need a file name with what the pattern's group matched, that name, and
    # the match that counts before others.
    renamed: tuple[str, str, str] | None = None
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
        self.lexer = name
        for attribute, value in {"labels": labels, **more}.items():
            words = isinstance(value, str) and attribute in WORDS
            setattr(self, attribute, str(value).split() if words else value)

    def file_of(self, source: str) -> str:
        """Return the name that the file of a program must have."""
        if self.renamed is None:
            return self.file
        import re  # slow to load

        pattern, name, preferred = self.renamed
        names = re.findall(pattern, re.sub(LITERAL, '""', source, flags=re.DOTALL), re.MULTILINE)
        if not names:
            return self.file
        file = name.format(preferred if preferred in names else names[0])
        return file if len(file.encode()) <= LONGEST_NAME else self.file

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
        archive.writestr("META-INF/MANIFEST.MF", f"Main-Class: {first}\n")
        for inner, data in classes.items():
            archive.writestr(inner, data)


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
    "tools": "go",
    "packages": "golang-go",
    "runtime_mib": 256,
    "threads": 16,
    "seconds": 0.1,
    "refused": ("runtime: out of memory", "runtime.(*mheap).grow("),
}
# The stack is that of the first thread; others have Java's usual one. Few threads, which the
# process limit counts, and no files of its own.
_JAVA = (
    "java -Xmx{heap}m -Xss{stack}k -XX:ThreadStackSize=1024 -XX:+UseSerialGC "
    "-XX:ActiveProcessorCount=2 -XX:-UsePerfData -XX:ErrorFile=/dev/null -Dfile.encoding=UTF-8 "
    "-Dstdout.encoding=UTF-8 -ea -jar {program}"
)

LANGUAGES = {
    language.name: language
    for language in (
        Language(
            "python",
            "Python 3",
            "python py ipython pypy",
            "solution.py",
            run="python3 {file}",
            idle="pass",
        ),
        Language(
            "cpp",
            "C++17",
            "cpp c++ cc cxx cplusplus",
            "solution.cpp",
            compile="g++ -std=c++17 -O2 -DONLINE_JUDGE -fmax-errors=20 -o program {file}",
            run="{program}",
            tools="g++",
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
            multipl_e="cpp",
        ),
        Language(
            "java",
            "Java",
            "java",
            "Main.java",
            renamed=(
                r"\bpublic\s+(?:(?:final|abstract|strictfp|sealed)\s+)*"
                r"(?:class|interface|enum|record)\s+([\w$]+)",
                "{}.java",
                "Main",
            ),
            compile=(
                "javac -J-Xmx512m -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 "
                "-J-XX:ActiveProcessorCount=2 -J-XX:-UsePerfData -encoding UTF-8 -nowarn "
                "-proc:none -d . {file}"
            ),
            run=_JAVA,
            tools="javac java",
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
            multipl_e="java",
        ),
        Language(
            "nodejs",
            "JavaScript (Node.js)",
            "javascript js nodejs node mjs cjs",
            "solution.js",
            # A module.
            renamed=(r"^[ \t]*(?:import[ \t]*[\w{*\"']|export[ \t])", "solution.mjs", ""),
            compile="node --check {file}",
            run="node --max-old-space-size={heap} --stack-size={stack} --v8-pool-size=1 {file}",
            tools="node",
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
            multipl_e="js",
        ),
        Language(
            "rust",
            "Rust",
            "rust rs",
            "solution.rs",
            compile="rustc --edition 2021 -C opt-level=2 -A warnings -o program {file}",
            run="{program}",
            tools="rustc cc",
            packages="rustc",
            stack_mib=MAX_STACK,
            idle="fn main() {}",
            hint="It uses the standard library alone. ",
            begins=r"(?:use|fn|mod|struct|enum|impl|trait|const|static|type|pub|extern)\b|//|/\*|#!?\[",
            main=r"\bfn\s+main\s*\(",
            reads=r"\bstdin\s*\(\s*\)",
            refused=("memory allocation of ",),
            multipl_e="rs",
        ),
        Language(
            "go",
            "Go",
            "go golang",
            "solution.go",
            compile="go build -o program {file}",
            run="{program}",
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
            compile="go test -c -o program {file}",
            # The flag with which ``go test`` notices an early exit.
            run="{program} -test.paniconexit0",
            idle='package main\nimport "testing"\nfunc TestNothing(t *testing.T) {}',
            lexer="go",
            multipl_e="go go_test.go",
            **_GO,
        ),
    )
}
# Those of programs that read standard input, in the order in which texts name them.
PROGRAMS = tuple(name for name in LANGUAGES if name != "go_test")
