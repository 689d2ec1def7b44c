"""Extraction of answers in languages other than Python."""

import pytest

from shared.extraction import Extraction, extract
from shared.extraction.languages import defines_function
from shared.statuses import ExtractionReason as Reason

PROGRAM = "#include <iostream>\nint main() { std::cout << 1; }"
MAIN_ONLY = "using namespace std;\nint main()\n{\n}"


@pytest.mark.parametrize(
    ("language", "labels"),
    [
        ("python", "python Python py PY python3 py3"),
        ("pytest", "python py pytest"),
        ("cpp", "cpp CPP c++ C++ cc cxx c++17 cpp20"),
        ("cuda", "cuda cu cpp"),
        ("nodejs", "javascript JavaScript js node nodejs"),
        ("jest", "javascript js typescript ts jest"),
        ("typescript", "typescript ts"),
        ("go", "go golang"),
        ("go_test", "go"),
        ("java", "java Java java17"),
        ("junit", "java"),
        ("php", "php"),
        ("csharp", "csharp c# cs"),
        ("bash", "bash sh shell"),
        ("sql", "sql SQL sqlite"),
        ("rust", "rust rs"),
        ("lua", "lua"),
        ("R", "R r"),
        ("perl", "perl pl"),
        ("D_ut", "d D dlang"),
        ("ruby", "ruby rb"),
        ("scala", "scala"),
        ("julia", "julia jl"),
        ("kotlin_script", "kotlin kt kts"),
        ("verilog", "verilog v systemverilog sv"),
        ("lean", "lean lean4"),
        ("swift", "swift"),
        ("racket", "racket rkt"),
    ],
)
def test_labels(language, labels):
    for label in labels.split():
        completion = f"```text\nno\n```\n\n```{label}\ncode\n```\n```text\nno\n```"
        assert extract(completion, language=language) == Extraction("code", Reason.FENCED)


@pytest.mark.parametrize(
    ("completion", "code", "reason"),
    [
        pytest.param(f"```\n{PROGRAM}\n```", PROGRAM, Reason.UNLABELLED, id="unlabelled"),
        pytest.param(
            f"```\n{PROGRAM}\n```\nOutput:\n```\n1\n```", PROGRAM, Reason.UNLABELLED, id="output"
        ),
        pytest.param(
            f"```cpp\nint f();\n```\n```cpp\n{PROGRAM}\n```", PROGRAM, Reason.FENCED, id="last"
        ),
        pytest.param(
            f"```cpp\n{PROGRAM}\n```\nThe point is\n```cpp\nx += 1;\n```",
            PROGRAM,
            Reason.FENCED,
            id="fragment after it",
        ),
        pytest.param(
            "```cpp\nint f();\n```\n```cpp\nint g();\n```", "int g();", Reason.FENCED, id="no main"
        ),
        pytest.param(
            f"```python\nprint(1)\n```\n```cpp\n{PROGRAM}\n```\n```py\nprint(1)\n```",
            PROGRAM,
            Reason.FENCED,
            id="among Python",
        ),
        pytest.param(
            f"Here:```cpp\n{PROGRAM}\n```", PROGRAM, Reason.FENCED, id="fence after a colon"
        ),
        pytest.param(
            f"  ~~~c++\r\n  {PROGRAM.splitlines()[0]}\r\n  ~~~  \r\n",
            "#include <iostream>",
            Reason.FENCED,
            id="tildes, indented, CRLF",
        ),
        pytest.param(
            "```cpp\nint main() {", "int main() {", Reason.UNCLOSED_FENCE, id="truncated"
        ),
        pytest.param("```python\nprint(1)\n```", "", Reason.NO_CODE_BLOCK, id="only Python"),
        pytest.param(f"{PROGRAM}\n", PROGRAM, Reason.BARE_CODE, id="bare"),
        pytest.param(MAIN_ONLY, MAIN_ONLY, Reason.BARE_CODE, id="bare without headers"),
        pytest.param(f"{PROGRAM}\n```\nDone.", PROGRAM, Reason.BARE_CODE, id="prompt's fence"),
        pytest.param(
            "Use #include and int main() in it.", "", Reason.NO_CODE_BLOCK, id="prose"
        ),
        pytest.param("    return n + 1\n", "", Reason.NO_CODE_BLOCK, id="body"),
        pytest.param("def f():\n    return 1", "", Reason.NO_CODE_BLOCK, id="bare Python"),
        pytest.param(
            f"<think>\n```cpp\nno\n```\n</think>\n```cpp\n{PROGRAM}\n```",
            PROGRAM,
            Reason.FENCED,
            id="reasoning",
        ),
        pytest.param(" \n", "", Reason.EMPTY, id="blanks"),
    ],
)  # fmt: skip
def test_cpp(completion, code, reason):
    assert extract(completion, language="cpp") == Extraction(code, reason)


def test_other_languages_need_a_fence():
    assert extract("echo 1", language="bash").reason is Reason.NO_CODE_BLOCK
    assert extract(PROGRAM, language="rust").reason is Reason.NO_CODE_BLOCK
    assert extract("```\necho 1\n```", language="bash").reason is Reason.UNLABELLED


def test_the_entry_point_is_not_looked_for():
    completion = "```cpp\nint solve();\n```\n```cpp\nint other();\n```"
    assert extract(completion, language="cpp", entry_point="solve").code == "int other();"


@pytest.mark.parametrize(
    ("code", "defines"),
    [
        ("long f(long x) {", True),
        ("std::vector<int> f (int x)\n{", True),
        ("template <class T> T* f(T* x) {", True),
        ("    public static ArrayList<Long> f(long x) throws Exception {", True),
        ("fn f<T: Ord>(x: Vec<T>) -> T {", True),
        ("func f(x []int) (int, error) {", True),
        ("async function f(x) {", True),
        ("export const f = (x) => x;", True),
        ("long f(long x);", False),
        ("int main() { f(1); }", False),
        ("if (f(1)) {", False),
        ("while (x < f(1)) { }", False),
        ("return f(1) ? x : [] {", False),
        ("std::cout << f(1);\nint g() {", False),
        ("long ff(long x) {", False),
        ("f(1)", False),
        ("", False),
    ],
)
def test_definitions_of_a_function(code: str, defines: bool) -> None:
    assert defines_function(code, "f") is defines


def test_a_block_with_the_function_is_the_answer() -> None:
    usage = "#include <iostream>\nint main() { std::cout << f(1); }"
    completion = f"```cpp\nlong f(long x) {{ return x; }}\n```\n```cpp\n{usage}\n```"
    found = extract(completion, language="cpp", entry_point="f")
    assert found.code == "long f(long x) { return x; }"
    assert extract(completion, language="cpp").code.endswith(usage)
