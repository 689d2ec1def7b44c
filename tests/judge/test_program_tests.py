"""Tests in the language of the answer (MultiPL-E): how programs are built, and what they get."""

import re
from collections.abc import Awaitable, Callable, Mapping

import pytest

from services.judge.methods.translated import program
from services.judge.sandbox import SandboxClient
from shared.extraction import Extraction
from shared.schemas import Problem, ProgramTests, Verdict
from shared.statuses import ExtractionReason, FinalStatus, VerdictDetail
from tests.judge.language_programs import is_installed
from tests.judge.tasks import fenced, make_task, together, verdict_of
from tests.shared.ledgers import problem

CPP_PROMPT = """\
#include<assert.h>
#include<unistd.h>
#include<cstdlib>
#include<vector>
// Add the numbers.
long total(std::vector<long> numbers) {
"""
CPP_TESTS = """\
}
int main() {
    auto candidate = total;
    assert(candidate((std::vector<long>({(long)1, (long)2}))) == (3));
    assert(candidate((std::vector<long>())) == (0));
}
"""
JAVA_PROMPT = """\
import java.util.*;
import java.lang.reflect.*;
import org.javatuples.*;
class Problem {
    // Add the numbers.
    public static long total(ArrayList<Long> numbers) {
"""
JAVA_TESTS = """\
    }
    public static void main(String[] args) {
    assert(total((new ArrayList<Long>(Arrays.asList((long)1l, (long)2l)))) == (3l));
    assert(total((new ArrayList<Long>(Arrays.asList()))) == (0l));
    }

}
"""
JS_PROMPT = "//Add the numbers.\nfunction total(numbers){\n"
JS_TESTS = """\
const assert = require('node:assert');


function test() {
  let candidate = total;
  assert.deepEqual(candidate([1, 2]),3);
  assert.deepEqual(candidate([]),0);
}

test();
"""
RUST_PROMPT = "/// Add the numbers.\nfn total(numbers: Vec<isize>) -> isize {\n"
RUST_TESTS = """\
}

fn main() {
    let candidate = total;
    assert_eq!(candidate(vec![1, 2]), 3);
    assert_eq!(candidate(Vec::<isize>::new()), 0);
}
"""
GO_PROMPT = """\
package total_test

import (
    "testing"
    "fmt"
)

// Add the numbers.
func total(numbers []int) int {
"""
GO_TESTS = """\
func TestTotal(t *testing.T) {
    candidate := total
    type test struct {
        actual   int
        expected int
    }
    tests := []test{
        {actual: candidate([]int{1, 2}), expected: 3},
        {actual: candidate([]int{4, 5}), expected: 9},
    }
    for i, tc := range tests {
        t.Run(fmt.Sprintf("test num % d", i), func(t *testing.T) {
            if tc.actual != tc.expected {
                t.Errorf("expected '%d', got '%d'", tc.expected, tc.actual)
            }
        })
    }
}
"""
SETS = {
    "cpp": (CPP_PROMPT, CPP_TESTS, ["\n}"]),
    "java": (JAVA_PROMPT, JAVA_TESTS, ["\n    }\n"]),
    "nodejs": (JS_PROMPT, JS_TESTS, ["\nfunction ", "\n/*", "\n//", "\nconsole.log"]),
    "rust": (RUST_PROMPT, RUST_TESTS, ["\n}"]),
    "go_test": (GO_PROMPT, GO_TESTS, ["\nfunc", "struct", "\n// "]),
}
LABELS = {"cpp": "cpp", "java": "java", "nodejs": "javascript", "rust": "rust", "go_test": "go"}


def given_tests(language: str) -> ProgramTests:
    prompt, tests, stops = SETS[language]
    return ProgramTests(language=language, prompt=prompt, program_tests=tests, stop_tokens=stops)


def problem_in(language: str) -> Problem:
    return problem(ground_truth=given_tests(language).model_dump_json())


def found(code: str, reason: ExtractionReason = ExtractionReason.FENCED) -> Extraction:
    return Extraction(code, reason)


Judge = Callable[[str, str], Awaitable[Verdict]]


@pytest.fixture
def judge(sandbox: SandboxClient) -> Judge:
    async def judge(language: str, completion: str) -> Verdict:
        timeout = "sandbox.timeout=1" if "for (;;)" in completion else "sandbox.timeout=5"
        task = make_task(sandbox, problem_in(language), completion, timeout)
        return await verdict_of(task)

    return judge


INSTALLED = {language for language in SETS if is_installed(language)}
needs_cpp = pytest.mark.skipif("cpp" not in INSTALLED, reason="this machine has no g++")


async def judge_all(judge: Judge, codes: Mapping[str, str]) -> dict[str, Verdict]:
    """Judge programs by name, whose first word is the language; leave out what cannot run here."""
    names = [name for name in codes if name.split()[0] in INSTALLED]
    if not names:
        pytest.skip("no language of this test is installed")

    async def judge_one(name: str) -> Verdict:
        language = name.split()[0]
        return await judge(language, fenced(codes[name], LABELS[language]))

    return await together(names, judge_one, at_a_time=4)


RIGHT = {
    "cpp": "long total(std::vector<long> numbers) {\n"
    "    long sum = 0;\n    for (long x : numbers) sum += x;\n    return sum;\n}",
    "cpp with main": "#include <bits/stdc++.h>\n"
    "using namespace std;\n\nlong total(vector<long> numbers) {\n"
    "    return accumulate(numbers.begin(), numbers.end(), 0L);\n}\n\n"
    "int main() {\n    cout << total({1, 2});\n}",
    "java": "import java.util.*;\n\nclass Problem {\n"
    "    public static long total(ArrayList<Long> numbers) {\n        long sum = 0;\n"
    "        for (long x : numbers) sum += x;\n        return sum;\n    }\n}",
    "java with main and helper": "import java.util.ArrayList;\n\npublic class Solution {\n"
    '    static String text = "}";  // a brace: }\n'
    "    public static long total(ArrayList<Long> numbers) {\n"
    "        return Solution.add(numbers);\n    }\n"
    "    private static long add(ArrayList<Long> all) {\n        long sum = 0;\n"
    "        for (long x : all) sum += x;\n        return sum;\n    }\n"
    "    public static void main(String[] args) {\n"
    "        System.out.println(total(new ArrayList<>()));\n    }\n}\nclass Other { }",
    "java with tuples": "import org.javatuples.*;\n\nclass Problem {\n"
    "    public static long total(ArrayList<Long> numbers) {\n"
    '        Pair<Long, String> sum = Pair.with(0L, "x");\n'
    "        for (long x : numbers) sum = new Pair<>(sum.getValue0() + x, sum.getValue1());\n"
    '        Object[] same = {Pair.with(sum.getValue0(), "x"), Unit.with(1).getValue(0)};\n'
    "        return sum.equals(same[0]) && sum.hashCode() == same[0].hashCode()\n"
    "            ? sum.getValue0() : -1;\n    }\n}",
    "java without a class": "public static long total(ArrayList<Long> numbers) {\n"
    "    return numbers.stream().mapToLong(Long::longValue).sum();\n}",
    "nodejs": "function total(numbers) {\n  return numbers.reduce((a, b) => a + b, 0);\n}",
    "nodejs with names of the tests": "const assert = require('assert');\n"
    "const total = (numbers) => numbers.reduce((a, b) => a + b, 0);\n"
    "function test() { assert(total([1]) === 1); console.log('ok'); }\ntest();",
    "nodejs module": "import { createRequire } from 'module';\n"
    "const require = createRequire(import.meta.url);\n"
    "export default function total(numbers) { return numbers.reduce((a, b) => a + b, 0); }",
    "java in one line": "import java.util.*; public final class Solution { "
    "public static long total(List<Long> all) { return all.stream().mapToLong(x -> x).sum(); } }",
    "rust": "fn total(numbers: Vec<isize>) -> isize {\n    numbers.iter().sum()\n}\n\n"
    'fn main() {\n    println!("{}", total(vec![1]));\n}',
    "go_test": 'package main\n\nimport "fmt"\n\nfunc total(numbers []int) int {\n    sum := 0\n'
    "    for _, x := range numbers {\n        sum += x\n    }\n    return sum\n}",
}


async def test_right_answers(judge: Judge) -> None:
    verdicts = await judge_all(judge, RIGHT)
    expected = (FinalStatus.SUCCESS, "function", "asserts", 1, True)
    assert {
        name: verdict.first_failed_case or verdict.final_status
        for name, verdict in verdicts.items()
        if expected
        != (
            *(verdict.final_status, verdict.method, verdict.checker),
            *(verdict.cases_total, verdict.shared_process),
        )
    } == {}


BODIES = {
    "cpp": "    long sum = 0;\n    for (long x : numbers) sum += x;\n    return sum;\n}\n"
    "int main() {\n    broken",
    "java": "        long sum = 0;\n        for (long x : numbers) sum += x;\n"
    "        return sum;\n    }\n\n    broken",
    "nodejs": "  return numbers.reduce((a, b) => a + b, 0);\n}\nfunction broken",
    "rust": "    numbers.iter().sum()\n}\nfn broken",
    "go_test": "    sum := 0\n    for _, x := range numbers {\n        sum += x\n    }\n"
    "    return sum\n}\n\nfunc broken",
}


async def test_a_completion_of_the_prompt_ends_at_a_stop_token(judge: Judge) -> None:
    languages = [language for language in BODIES if language in INSTALLED]
    verdicts = await together(languages, lambda language: judge(language, BODIES[language]))
    reasons = {
        language: (verdict.final_status, verdict.code and verdict.code.reason)
        for language, verdict in verdicts.items()
    }
    expected = (FinalStatus.SUCCESS, ExtractionReason.BODY_ONLY)
    assert reasons == dict.fromkeys(languages, expected)


LIAR = (
    "struct Liar { bool operator==(long) { return true; } };\n"
    "long total(std::vector<long> n) { return 1; }\n"
)
EARLY = {
    "cpp": "long total(std::vector<long> n) { exit(0); }",
    "cpp at the start": "long total(std::vector<long> n) { return 1; }\n"
    "struct Leave { Leave() { std::cout << 1 << std::endl; _exit(0); } } leave;",
    **{
        f"cpp by a macro, {number}": f"{LIAR}{macro}"
        for number, macro in enumerate(
            [
                "#define assert(x) ((void)0)\n#define NDEBUG",
                "%:define candidate(...) Liar()",
                "#def\\\nine candi\\ \t\ndate(...) Liar()",
                'const char *t = R"(define /*)";\n#define candidate(...) Liar()\n// */ y',
            ]
        )
    },
    "java": "class Problem { public static long total(ArrayList<Long> n) "
    "{ System.exit(0); return 1; } }",
    "nodejs": "function total(numbers) { process.exit(0); }",
    "nodejs silenced": "process.on('uncaughtException', () => process.exit(0));\n"
    "function total(numbers) { return 1; }",
    "nodejs with another assert": "const assert = require('node:assert');\n"
    "assert.deepEqual = assert.deepStrictEqual = () => {};\nfunction total() { return 1; }",
    "nodejs with another require": "function require() { return { deepEqual() {} }; }\n"
    "function total() { return 1; }",
    "nodejs module with another assert": "import assert from 'node:assert';\n"
    "assert.deepEqual = () => {};\nexport function total() { return 1; }",
    "nodejs hidden tests": "const total = () => 1;\n/*",
    "go_test": 'import "os"\nfunc total(numbers []int) int { os.Exit(0); return 1 }',
    "rust": "fn total(n: Vec<isize>) -> isize { std::process::exit(0) }",
    "rust with another macro": "macro_rules! assert_eq { ($a:expr, $b:expr) => {} }\n"
    "fn total(n: Vec<isize>) -> isize { 1 }",
}


async def test_an_answer_that_ends_before_its_tests_is_not_accepted(judge: Judge) -> None:
    verdicts = await judge_all(judge, EARLY)
    assert [name for name, one in verdicts.items() if one.accepted or one.infra_failures] == []
    if "cpp" in verdicts:
        early = verdicts["cpp"]
        assert (early.final_status, early.detail) == ("runtime_error", VerdictDetail.EARLY_EXIT)


FAILURES = {
    FinalStatus.WRONG_ANSWER: {
        "cpp": "long total(std::vector<long> numbers) { return 3; }",
        "java": "class Problem { public static long total(ArrayList<Long> n) { return 3; } }",
        "nodejs": "function total(numbers) { return 3; }",
        "rust": "fn total(numbers: Vec<isize>) -> isize { 3 }",
        "go_test": "func total(numbers []int) int { return 3 }",
    },
    FinalStatus.SYNTAX_ERROR: {
        "cpp": "long total(std::vector<long> n) { return x; }",
        "java": "class Problem { public static long total(ArrayList<Long> n) { return x; } }",
        "rust": "fn total(n: Vec<isize>) -> isize { x }",
        "go_test": "func total(numbers []int) int { return x }",
    },
    FinalStatus.RUNTIME_ERROR: {
        "cpp": "long total(std::vector<long> n) { abort(); }",
        "java": "class Problem { public static long total(ArrayList<Long> n) "
        '{ throw new IllegalStateException("x"); } }',
        "nodejs": "function total(numbers) { return missing; }",
        "go_test": "func total(numbers []int) int { return numbers[99] }",
    },
    FinalStatus.TIMEOUT: {"cpp": "long total(std::vector<long> n) { for (;;); }"},
}


@pytest.mark.parametrize("status", FAILURES)
async def test_failures(judge: Judge, status: FinalStatus) -> None:
    verdicts = await judge_all(judge, FAILURES[status])
    found = {name: one.final_status for name, one in verdicts.items()}
    assert found == dict.fromkeys(found, status)
    if status is FinalStatus.SYNTAX_ERROR:  # the compiler's text is in the verdict
        texts = [
            (verdict.first_failed_case and verdict.first_failed_case.stderr) or ""
            for verdict in verdicts.values()
        ]
        assert all(re.search("error|undefined: x", text) for text in texts)


@needs_cpp
async def test_an_example_after_the_function_is_not_the_answer(judge: Judge) -> None:
    usage = "#include <iostream>\nint main() {\n    std::cout << total({1});\n}"
    completion = f"{fenced(RIGHT['cpp'], 'cpp')}\nUse it so:\n```cpp\n{usage}\n```"
    assert (await judge("cpp", completion)).accepted


# Programs


def test_go_gets_the_packages_name_and_all_imports_once() -> None:
    code = (
        'package main\n\nimport "fmt"\nimport (\n    "sort"\n    m "math"  // maths\n)\n\n'
        "func total(numbers []int) int {\n\treturn 0\n}\n"
    )
    built = program(found(code), given_tests("go_test"))
    assert built.startswith("package total_test\n")
    assert built.count("package ") == 1
    assert [built.count(one) for one in ('"testing"', '"fmt"', '"sort"', 'm "math"')] == [1] * 4
    assert built.endswith(GO_TESTS)


def test_types_that_a_prompt_declares() -> None:
    union = "union Union_long {\n    long f0;\n};\n"
    prompt = CPP_PROMPT.replace("// Add", f"{union}// Add")
    tests = given_tests("cpp").model_copy(update={"prompt": prompt})
    answer = RIGHT["cpp"]
    assert program(found(answer), tests).count("union Union_long ") == 1
    assert program(found(union + answer), tests).count("union Union_long ") == 1


PIECES = ["/*", "import (", "total(", "class ", "{", '"', "total<", "\t"]


@pytest.mark.parametrize("language", SETS)
def test_long_answers_end(language: str) -> None:
    """Quadratic time would run into the time limit of a test."""
    for piece in PIECES:
        code = f"{piece}\n" * (100_000 // (len(piece) + 1))
        program(found(code), given_tests(language))
