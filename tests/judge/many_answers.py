"""Problems with many right outputs: their checkers, with right and subtly wrong outputs."""

# ruff: noqa: E501 - sources of checkers

from dataclasses import dataclass


@dataclass(frozen=True)
class ManyAnswers:
    """One test of a problem; ``cpp`` is a checker with testlib, otherwise ``python`` is one."""

    name: str
    given: str
    expected: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    python: str = ""
    cpp: str = ""

    @property
    def checker(self) -> dict[str, str]:
        if self.python:
            return {"checker_source": self.python}
        return {"checker_source": self.cpp, "checker_language": "cpp"}


def function(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"def check(input, output, expected):\n{lines}\n"


def script(body: str) -> str:
    return f"import sys\ngiven, output, expected = (open(path).read() for path in sys.argv[1:])\n{body}"


def cpp_checker(body: str, before: str = "") -> str:
    return f"""#include "testlib.h"
{before}
using namespace std;
int main(int argc, char* argv[]) {{
    registerTestlibCmd(argc, argv);
{body}
}}
"""


PROBLEMS = (
    ManyAnswers(
        "permutation without neighbours",
        "4\n",
        "2 4 1 3\n",
        ("3 1 4 2", "2\n4\n1\n3\n", "  2 4   1 3"),
        ("1 2 3 4", "2 4 1", "2 4 1 3 5", "2 4 1 1", "2 4 1 x", "", "2 4 1 4"),
        cpp=cpp_checker(
            """
    int n = inf.readInt();
    vector<int> p = ouf.readInts(n, 1, n, "p");
    if (set<int>(p.begin(), p.end()).size() != p.size()) quitf(_wa, "not a permutation");
    for (int i = 1; i < n; i++)
        if (abs(p[i] - p[i - 1]) == 1) quitf(_wa, "%d and %d are neighbours", p[i - 1], p[i]);
    quitf(_ok, "n=%d", n);""",
            "#include <bits/stdc++.h>",
        ),
    ),
    ManyAnswers(
        "real number, relative or absolute error",
        "2\n",
        "1.4142135623730951\n",
        ("1.414214", "1.41421356237", "1.4142135\n\n", "+1.4142136"),
        ("1.4141", "1.4", "nan", "inf", "1.4142136 1", "1,414", "0x1.6a09e6p0", "", "-1.4142136"),
        cpp=cpp_checker("""
    double expected = ans.readDouble(), found = ouf.readDouble();
    if (!doubleCompare(expected, found, 1e-6))
        quitf(_wa, "expected %.9f, found %.9f, error %.9f", expected, found, doubleDelta(expected, found));
    quitf(_ok, "%.9f", found);"""),
    ),
    ManyAnswers(
        "several test cases with a witness each",
        "2\n6\n7\n",
        "2 3\n-1\n",
        ("3 2\n-1", "2 3 -1"),
        ("1 6\n-1", "2 3\n1 7", "2 3\n-1 -1", "-1\n-1", "2 3", "6 1 -1"),
        cpp=cpp_checker("""
    int tests = inf.readInt();
    for (int t = 1; t <= tests; t++) {
        setTestCase(t);
        int n = inf.readInt();
        auto read = [&](InStream& in) {
            int a = in.readInt(-1, n, "a");
            if (a == -1) return false;
            int b = in.readInt(2, n, "b");
            if (a < 2 || a * b != n) in.quitf(_wa, "%d * %d is not %d", a, b, n);
            return true;
        };
        bool jury = read(ans), found = read(ouf);
        if (jury && !found) quitf(_wa, "there is a factor");
        if (!jury && found) quitf(_fail, "jury has no factor");
    }
    unsetTestCase();
    quitf(_ok, "%d tests", tests);"""),
    ),
    ManyAnswers(
        "points: as many as the expected output",
        "10\n",
        "7\n",
        ("8", "7 "),
        ("6", "0", "11", "-1", "x"),
        cpp=cpp_checker("""
    int n = inf.readInt(), value = ouf.readInt(0, n, "value");
    quitp(double(value) / n, "value %d", value);"""),
    ),
    ManyAnswers(
        "plain C++ without testlib",
        "12\n",
        "3 4\n",
        ("2 6", "12 1", "4\n3"),
        ("3 5", "3", "", "0 0", "-3 -4 5", "a b"),
        cpp="""
#include <fstream>
int main(int argc, char** argv) {
    std::ifstream given(argv[1]), output(argv[2]), expected(argv[3]);
    long long n, a, b, more;
    given >> n;
    if (!(output >> a >> b)) return 2;
    if (output >> more) return 2;
    if (a < 1 || b < 1 || a * b != n) return 1;
}
""",
    ),
    ManyAnswers(
        "any divisor",
        "12\n",
        "2\n",
        ("3", "12", " 6 "),
        ("5", "1", "0", "", "3.0", "2 3", "x"),
        function("n, d = int(input), int(output)\nreturn d > 1 and n % d == 0"),
    ),
    ManyAnswers(
        "knight's move from a square",
        "a1\n",
        "b3\n",
        ("c2", " c2 \n"),
        ("b2", "a1", "c3", "z9", "b3 c2", "", "B3"),
        script(
            "a, b = given.strip(), output.split()\n"
            "if len(b) != 1 or len(b[0]) != 2 or b[0][0] not in 'abcdefgh' or b[0][1] not in '12345678':\n"
            "    sys.exit(2)\n"
            "moves = sorted(abs(ord(x) - ord(y)) for x, y in zip(a, b[0]))\n"
            "sys.exit(0 if moves == [1, 2] else 1)\n"
        ),
    ),
)
