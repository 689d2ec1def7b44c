"""Tests of MultiPL-E: programs of the answer, continued by tests in its own language.

Answer and tests share a process, so an answer that ends the program early must not pass: the last
act of the tests is to print a token that arrives on standard input. Those of Go need not:
``go test`` notices an early exit itself.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from string import Template

from services.judge import calls
from services.judge.calls import Method, Task
from services.judge.verdict import CaseOutcome, Lateness, Outcomes, failure_detail
from shared.extraction import Extraction, extract
from shared.extraction.languages import defines_function
from shared.harness.languages import LANGUAGES, LITERAL
from shared.harness.wire import CaseRun
from shared.schemas import ProgramTests
from shared.statuses import CaseCode, ExtractionReason, JudgeMethod, VerdictDetail

_MAIN = "plumbline_unused_main"
_IMPORT = re.compile(
    r"^[ \t]*(?:#[ \t]*include\b.*|(?:import|use)\b[^;\n]*;?[ \t]*(?:$|//.*)?)", re.MULTILINE
)
_GO_IMPORT = re.compile(
    r'^import[ \t]*(?:\(([^)]{0,4000})\)|((?:[\w.]+[ \t]+)?"[^"\n]*"))', re.MULTILINE
)
_GO_PACKAGE = re.compile(r"^package[ \t]+\w+.*$", re.MULTILINE)
_JAVA_CLASS = re.compile(r"\bclass\s+(\w+)")
_TUPLES = (
    *("Unit", "Pair", "Triplet", "Quartet", "Quintet"),
    *("Sextet", "Septet", "Octet", "Ennead", "Decade"),
)
_JAVATUPLES = re.compile(r"^[ \t]*import[ \t]+org\.javatuples\..*$", re.MULTILINE)
# Braces, and the texts and comments within which braces do not count.
_BRACE = re.compile(rf"[{{}}]|{LITERAL}", re.DOTALL)


class ProgramMethod(Method):
    """One program contains the answer and its tests, and runs once."""

    name = JudgeMethod.FUNCTION
    checker = "asserts"
    shared_process = True

    def __init__(self, task: Task, tests: ProgramTests) -> None:
        self.extraction = extract_function(task, tests)
        self._tests = tests
        self._token = secrets.token_hex(16)
        self._program = program(self.extraction, tests)

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        outcome, run = await calls.run_once(
            task, self._program, f"{self._token}\n", self._tests.language
        )
        if run is not None:
            outcome = self._judged(outcome, run)
        return {0: replace(outcome, expected=self._tests.program_tests)}

    def _judged(self, outcome: CaseOutcome, run: CaseRun) -> CaseOutcome:
        stdout = run.stdout.decode("utf-8", "replace")
        ended = stdout.rstrip().rpartition("\n")[2] == self._token
        code: CaseCode = CaseCode.PASSED
        detail: VerdictDetail | str | None = None
        if outcome.lateness is not Lateness.IN_TIME:
            code = CaseCode.TIMEOUT
        elif run.exit_code != 0 and is_assertion(stdout, run.stderr):
            code = CaseCode.WRONG_ANSWER
        elif run.exit_code != 0:
            code, detail = CaseCode.RUNTIME_ERROR, failure_detail(run.exit_code, run.stderr)
        elif self._tests.language != "go_test" and not ended:
            code, detail = CaseCode.RUNTIME_ERROR, VerdictDetail.EARLY_EXIT
        shown = stdout.replace(self._token, "").rstrip("\n")
        return replace(outcome, code=code, detail=detail, actual=shown)


def extract_function(task: Task, tests: ProgramTests) -> Extraction:
    """Extract the function; a text without any code block continues the prompt."""
    entry_point = tests.entry_point or None
    extraction = extract(task.completion, language=tests.language, entry_point=entry_point)
    bare = not extraction.found or extraction.reason is ExtractionReason.BARE_CODE
    if not bare or "```" in task.completion:
        return extraction
    whole = defines_function(task.completion, tests.entry_point)
    reason = ExtractionReason.BARE_CODE if whole else ExtractionReason.BODY_ONLY
    return Extraction(task.completion, reason, 0)


def program(answer: Extraction, tests: ProgramTests) -> str:
    """Build the program: the answer, which completes or repeats the prompt's function, and tests.

    Raises:
        KeyError: The language is not one of ``TRANSLATIONS``.
    """
    whole = answer.reason is not ExtractionReason.BODY_ONLY
    code = answer.code if whole else f"{tests.prompt}{_until(answer.code, tests.stop_tokens)}\n"
    return TRANSLATIONS[tests.language](code, tests, whole)


def is_assertion(stdout: str, stderr: str) -> bool:
    """Whether the output of a failed program is that of a failed test, not of a crash."""
    if "panic: " in stdout or "panic: " in stderr:
        return False  # of Go, within a test
    rust = "panicked at" in stderr and "assertion" in stderr
    signs = ("Assertion `", "java.lang.AssertionError", "[ERR_ASSERTION]")
    return rust or any(sign in stderr for sign in signs) or "--- FAIL" in stdout


def _until(code: str, stops: Iterable[str]) -> str:
    ends = [place for stop in stops if stop and (place := code.find(stop)) >= 0]
    return code[: min(ends)] if ends else code


def _opened(tests: str) -> str:
    """The tests without the brace that closes the prompt's function."""
    return tests.lstrip().removeprefix("}")


def _before_last_braces(text: str, count: int, inserted: str) -> str:
    place = len(text)
    for _ in range(count):
        place = max(0, text.rfind("}", 0, place))
    return f"{text[:place]}{inserted}\n{text[place:]}"


def _missing_imports(code: str, prompt: str) -> str:
    present = {"".join(line.split()) for line in _IMPORT.findall(code)}
    lines = [line for line in _IMPORT.findall(prompt) if "".join(line.split()) not in present]
    return "".join(f"{line}\n" for line in lines)


# C++

_CPP_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
# A lookahead, because what follows a word in a comment or string may contain a directive.
_CPP_MACRO = re.compile(r"define(?=(?:\s|/\*.*?\*/)+(\w+))", re.DOTALL)
# They cannot be macros.
_CPP_RESERVED = {"defined", "__VA_ARGS__", "__VA_OPT__"}
_CPP_TOKEN = """\
    ::std::string plumbline_token; ::std::getline(::std::cin, plumbline_token);
    ::std::cout << '\\n' << plumbline_token << ::std::endl;"""


def _cpp(code: str, tests: ProgramTests, whole: bool) -> str:
    if whole:
        head = f"{_missing_imports(code, tests.prompt)}{_cpp_declarations(code, tests.prompt)}"
        code = f"{head}#define main {_MAIN}\n{code}"
    else:
        code += "}"
    included = "#include <iostream>\n#include <string>\n"
    main = _before_last_braces(_opened(tests.program_tests), 1, _CPP_TOKEN)
    # The second line end stays if the answer ends with a backslash.
    return f"{included}{code}\n\n{_cpp_without_macros(code)}{main}"


def _cpp_declarations(code: str, prompt: str) -> str:
    """The types that a prompt declares before its function, unless the answer repeats them."""
    start, end = prompt.find("union "), prompt.rfind("};")
    declared = f"{prompt[start : end + 2]}\n" if 0 <= start < end else ""
    return "" if declared.partition("{")[0] in code else declared


def _cpp_without_macros(code: str) -> str:
    """Return lines after which nothing is a macro of the answer; too many do no harm."""
    macros = _CPP_MACRO.findall(_CPP_SPLICE.sub("", code))
    names = sorted({"main", "assert", "NDEBUG", *macros} - _CPP_RESERVED)
    return "".join(f"#undef {name}\n" for name in names) + "#include <assert.h>\n"


# Java

_JAVA_TOKEN = (
    '        java.lang.System.out.println("\\n"'
    " + new java.util.Scanner(java.lang.System.in).nextLine());"
)


def _java(code: str, tests: ProgramTests, whole: bool) -> str:
    if not whole:
        joined = f"{code}{_before_last_braces(tests.program_tests, 2, _JAVA_TOKEN)}"
        return _java_main(_with_tuples(joined), "Problem")
    imports = "".join(f"{line.strip()}\n" for line in _IMPORT.findall(code))
    body = re.sub(r"^[ \t]*package\b.*$", "", _IMPORT.sub("", code), flags=re.MULTILINE)
    body = re.sub(r"\bvoid\s+main\s*\(", f"void {_MAIN}(", body)
    name, end = _java_class(body, tests.entry_point)
    if not name:
        name, body = "Problem", f"class Problem {{\n{body}\n}}"
        end = len(body) - 1
    # The tests close the class, too.
    main = _before_last_braces(_opened(tests.program_tests), 2, _JAVA_TOKEN)
    joined = f"{body[:end]}{main.rstrip().removesuffix('}')}{body[end:]}"
    return _java_main(
        _with_tuples(f"{imports}{_missing_imports(imports, tests.prompt)}{joined}"), name
    )


def _java_class(code: str, entry_point: str) -> tuple[str, int]:
    """Find the top-level class with the function: its name, and the place of its last brace."""
    depth = opened = ended = 0
    for brace in _BRACE.finditer(code):
        if brace[0] == "{":
            opened = opened if depth else brace.start()
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                names = _JAVA_CLASS.findall(code[ended:opened])
                if names and re.search(
                    rf"\b{re.escape(entry_point)}\s*\(", code[opened : brace.start()]
                ):
                    return names[-1], brace.start()
                ended = brace.end()
    return "", 0


def _java_main(code: str, name: str) -> str:
    """Rename the class to the one that is started."""
    return re.sub(rf"\b{re.escape(name)}\b", "Main", code)


# A class of javatuples, which MultiPL-E imports, as far as tests and answers use it.
_JAVA_TUPLE = Template("""
class $name<$types> implements Iterable<Object> {
    private final java.util.List<Object> values;
    public $name($parameters) { values = java.util.Arrays.asList($arguments); }
    public static <$types> $name<$types> with($parameters) { return new $name<>($arguments); }
$getters
    public Object getValue(int place) { return values.get(place); }
    public int getSize() { return values.size(); }
    public boolean contains(Object value) { return values.contains(value); }
    public java.util.List<Object> toList() { return values; }
    public java.util.Iterator<Object> iterator() { return values.iterator(); }
    public int hashCode() { return values.hashCode(); }
    public String toString() { return values.toString(); }
    public boolean equals(Object other) {
        return other instanceof $name && values.equals((($name<$wild>) other).values);
    }
}
""")
_JAVA_GETTER = """\
    @SuppressWarnings("unchecked")
    public T{0} getValue{0}() {{ return (T{0}) values.get({0}); }}"""


def _with_tuples(code: str) -> str:
    """Replace the import of javatuples by the classes that the program uses."""
    rest = _JAVATUPLES.sub("", code)
    used = [
        (name, range(place + 1))
        for place, name in enumerate(_TUPLES)
        if re.search(rf"\b{name}\b", rest) and not re.search(rf"\bclass\s+{name}\b", rest)
    ]
    classes = [
        _JAVA_TUPLE.substitute(
            name=name,
            types=", ".join(f"T{i}" for i in places),
            wild=", ".join("?" for _ in places),
            parameters=", ".join(f"T{i} v{i}" for i in places),
            arguments=", ".join(f"v{i}" for i in places),
            getters="\n".join(_JAVA_GETTER.format(i) for i in places),
        )
        for name, places in used
    ]
    return "\n".join([rest, *classes]) if rest != code else code


# JavaScript

# What the tests use, as it was before the answer.
_JS_HEAD = """\
const plumbline_tests = Object.freeze({
  assert: Object.freeze(Object.assign({}, require('node:assert'))),
  print: console.log.bind(console),
  read: require('node:fs').readFileSync,
});
"""
# An answer with ``import`` or ``export`` makes the program a module, which has no ``require``.
_JS_MODULE = """\
import { createRequire as plumbline_create } from 'node:module';
const plumbline_require = plumbline_create(import.meta.url);
"""
_JS_TOKEN = "plumbline_tests.print('\\n' + plumbline_tests.read(0, 'utf8').trim());"


def _js(code: str, tests: ProgramTests, _whole: bool) -> str:
    # Within a function, so that the tests may declare a name that the answer declares, too.
    body = f"(function (require) {{\n{tests.program_tests}\n{_JS_TOKEN}\n}})"
    head = _JS_HEAD
    if LANGUAGES["nodejs"].file_of(code) != LANGUAGES["nodejs"].file:
        head = _JS_MODULE + head.replace("require(", "plumbline_require(")
    return f"{head}{code}\n;{body}(() => plumbline_tests.assert);\n"


# Rust

_RUST_TOKEN = """\
    let mut plumbline_token = ::std::string::String::new();
    ::std::io::stdin().read_line(&mut plumbline_token).unwrap();
    ::std::println!("\\n{}", plumbline_token.trim());"""


def _rust(code: str, tests: ProgramTests, whole: bool) -> str:
    main = tests.program_tests
    if whole:
        code = re.sub(r"\bfn\s+main\s*\(", f"fn {_MAIN}(", code)
        code = f"{_missing_imports(code, tests.prompt)}{code}\n"
        main = _opened(main)
    # The answer cannot replace these macros by its own.
    main = re.sub(r"(?<![\w:])(assert(?:_eq|_ne)?)!", r"::std::\1!", main)
    return f"{code}{_before_last_braces(main, 1, _RUST_TOKEN)}"


# Go


def _go(code: str, tests: ProgramTests, whole: bool) -> str:
    if not whole:
        return f"{code}{tests.program_tests}"
    package = _GO_PACKAGE.search(tests.prompt)
    imports = dict.fromkeys((*_go_imports(tests.prompt), *_go_imports(code)))
    body = _GO_IMPORT.sub("", _GO_PACKAGE.sub("", code, count=1))
    lines = "".join(f"    {line}\n" for line in imports)
    head = package[0] if package else "package main_test"
    return f"{head}\n\nimport (\n{lines})\n{body}\n{tests.program_tests}"


def _go_imports(code: str) -> list[str]:
    blocks = [block or single for block, single in _GO_IMPORT.findall(code)]
    lines = [line.partition("//")[0].strip() for text in blocks for line in text.split("\n")]
    return [line for line in lines if line]


TRANSLATIONS: Mapping[str, Callable[[str, ProgramTests, bool], str]] = {
    "cpp": _cpp,
    "java": _java,
    "nodejs": _js,
    "rust": _rust,
    "go_test": _go,
}
"""By language: the program of an answer, or of the prompt with its body, and of the tests.

The last argument is true if the answer is a whole function.
"""
