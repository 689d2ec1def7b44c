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
#include <bits/stdc++.h>
using namespace std;
{before}
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
        cpp=cpp_checker("""
    int n = inf.readInt();
    vector<int> p = ouf.readInts(n, 1, n, "p");
    if (set<int>(p.begin(), p.end()).size() != p.size()) quitf(_wa, "not a permutation");
    for (int i = 1; i < n; i++)
        if (abs(p[i] - p[i - 1]) == 1) quitf(_wa, "%d and %d are neighbours", p[i - 1], p[i]);
    quitf(_ok, "n=%d", n);"""),
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
        "subset with a sum, or NO",
        "5 9\n2 7 4 5 1\n",
        "YES\n2\n1 2\n",
        ("YES\n2\n3 4", "YES\n2\n2 1", "YES\n2\n4 3"),
        (
            "NO",
            "YES\n2\n1 3",
            "YES\n2\n1 1",
            "YES\n3\n1 2",
            "YES",
            "YES\n2\n0 2",
            "MAYBE",
            "YES\n2\n1 2 3",
        ),
        cpp=cpp_checker("""
    int n = inf.readInt(); long long wanted = inf.readLong();
    vector<long long> a = inf.readLongs(n);
    string jury = ans.readToken("YES|NO"), found = ouf.readToken("YES|NO", "verdict");
    if (found == "NO") {
        if (jury == "YES") quitf(_wa, "a subset exists");
        quitf(_ok, "none");
    }
    int k = ouf.readInt(1, n, "k");
    set<int> used; long long sum = 0;
    for (int i = 0; i < k; i++) {
        int at = ouf.readInt(1, n, "index");
        if (!used.insert(at).second) quitf(_wa, "index %d twice", at);
        sum += a[at - 1];
    }
    if (sum != wanted) quitf(_wa, "sum is %lld", sum);
    if (jury == "NO") quitf(_fail, "participant found a subset, jury did not");
    quitf(_ok, "k=%d", k);"""),
    ),
    ManyAnswers(
        "words in any order",
        "b a c\n",
        "a\nb\nc\n",
        ("c\nb\na", "b\nc\na\n"),
        ("a\nb", "a\nb\nb", "a\nb\nc\nc", "a b\nc\nd", "", "A\nb\nc"),
        cpp=cpp_checker("""
    multiset<string> wanted, found;
    while (!ans.seekEof()) wanted.insert(ans.readWord());
    while (!ouf.seekEof()) found.insert(ouf.readWord());
    if (wanted != found) quitf(_wa, "%d words, other ones", int(found.size()));
    quitf(_ok, "%s", join(found, ",").c_str());"""),
    ),
    ManyAnswers(
        "lines compared exactly, blanks at their ends ignored",
        "x\n",
        "a  b\nc\n",
        ("a  b  \nc", "a  b\nc\n\n\n"),
        ("a b\nc", "a  b", "a  b c", "a  b\nc\nd"),
        cpp=cpp_checker("""
    int n = 0;
    while (!ans.eof()) {
        string j = ans.readString();
        if (j.empty() && ans.eof()) break;
        string p = ouf.readString();
        n++;
        while (!p.empty() && p.back() == ' ') p.pop_back();
        if (j != p) quitf(_wa, "%d%s lines differ - expected: '%s', found: '%s'", n, englishEnding(n).c_str(),
                          compress(j).c_str(), compress(p).c_str());
    }
    quitf(_ok, "%d lines", n);"""),
    ),
    ManyAnswers(
        "long integers in order",
        "1\n",
        "10000000000 -3 0\n",
        ("10000000000\n-3\n0", " 10000000000 -3 0 "),
        (
            "10000000000 -3",
            "1e10 -3 0",
            "10000000000 -3 00",
            "10000000000 -3 -0",
            "+10000000000 -3 0",
            "10000000000 -3 0 0",
            "99999999999999999999 -3 0",
            "10000000000. -3 0",
        ),
        cpp=cpp_checker("""
    int n = 0;
    string first;
    while (!ans.seekEof() && !ouf.seekEof()) {
        n++;
        long long j = ans.readLong(), p = ouf.readLong();
        if (j != p) quitf(_wa, "%d%s numbers differ - expected: '%s', found: '%s'", n, englishEnding(n).c_str(),
                          vtos(j).c_str(), vtos(p).c_str());
        first += vtos(j) + " ";
    }
    int extra = 0;
    while (!ans.seekEof()) { ans.readLong(); extra++; }
    if (extra) quitf(_wa, "%d numbers are missing", extra);
    while (!ouf.seekEof()) { ouf.readLong(); extra++; }
    if (extra) quitf(_wa, "%d numbers too many", extra);
    quitf(_ok, "%d numbers: %s", n, compress(trim(first)).c_str());"""),
    ),
    ManyAnswers(
        "matching of maximum size",
        "2 2 3\n1 1\n1 2\n2 1\n",
        "2\n1 2\n2 1\n",
        ("2\n2 1\n1 2", "2 2 1 1 2"),
        ("1\n1 1", "2\n1 1\n2 1", "2\n1 2\n2 2", "2\n1 2", "3\n1 2\n2 1\n1 1", "2\n1 2\n1 2", "0"),
        cpp=cpp_checker("""
    int left = inf.readInt(), right = inf.readInt(), m = inf.readInt();
    set<pair<int, int>> edges;
    for (int i = 0; i < m; i++) { int a = inf.readInt(), b = inf.readInt(); edges.emplace(a, b); }
    auto size = [&](InStream& in) {
        int k = in.readInt(0, min(left, right), "size");
        set<int> ls, rs;
        for (int i = 0; i < k; i++) {
            int a = in.readInt(1, left), b = in.readInt(1, right);
            if (!edges.count({a, b})) in.quitf(_wa, "no edge %d %d", a, b);
            if (!ls.insert(a).second || !rs.insert(b).second) in.quitf(_wa, "a vertex twice");
        }
        return k;
    };
    int jury = size(ans), found = size(ouf);
    if (found < jury) quitf(_wa, "%d, but %d is possible", found, jury);
    if (found > jury) quitf(_fail, "better than the jury");
    quitf(_ok, "%d", found);"""),
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
        "string that is a palindrome of the letters",
        "aabbc\n",
        "abcba\n",
        ("bacab", "abcba\n\n"),
        ("aabbc", "abbba", "abccba", "abcb", "ABCBA", "abcba abcba", "ab ba"),
        cpp=cpp_checker("""
    string given = inf.readToken(), jury = ans.readLine(), found = ouf.readToken(pattern("[a-z]{1,100}"), "s");
    string turned(found.rbegin(), found.rend());
    quitif(turned != found, _wa, "no palindrome: %s", found.c_str());
    sort(given.begin(), given.end());
    sort(found.begin(), found.end());
    ensuref(jury.size() == given.size(), "jury's answer");
    if (given != found) quitf(_wa, "other letters");
    quit(_ok, "palindrome");"""),
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
        "balanced brackets of a length",
        "6\n",
        "((()))\n",
        ("()()()", "(())()", "()(())\n"),
        ("(()))", "))((()", "((())", "()()", "()()()()", "((()))x"),
        function(
            "depth, text = 0, output.strip()\nfor letter in text:\n"
            "    depth += {'(': 1, ')': -1}[letter]\n    if depth < 0: return False\n"
            "return depth == 0 and len(text) == int(input)"
        ),
    ),
    ManyAnswers(
        "longest common subsequence as a text",
        "abcbdab\nbdcaba\n",
        "bcba\n",
        ("bdab", "bcab\n"),
        ("bcb", "bcbaa", "abcd", "", "bdba", "BCBA"),
        function(
            "def within(part, text):\n    rest = iter(text)\n    return all(c in rest for c in part)\n"
            "a, b = input.split()\nfound = output.strip()\n"
            "return len(found) == len(expected.strip()) and within(found, a) and within(found, b)"
        ),
    ),
    ManyAnswers(
        "float with tolerance in Python",
        "3\n",
        "0.3333333333\n",
        ("0.33333", "3.3333e-1", "0.333337"),
        ("0.334", "0.33", "1/3", "nan", "", "0.33333 0"),
        function(
            "import math\nfound = float(output)\n"
            "return math.isfinite(found) and abs(found - float(expected)) <= 1e-5"
        ),
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
    ManyAnswers(
        "expression with a value",
        "1 2 3 7\n",
        "1+2*3\n",
        ("(1+2*3)", "1 + (2 * 3)"),
        ("1+2+3", "7", "1*7", "1+2*3+0", "__import__('os')._exit(0)", "1+2*", "(lambda: 7)()"),
        script(
            "import ast, re\n"
            "*numbers, wanted = given.split()\n"
            "if not re.fullmatch(r'[-+*() 0-9]+', output.strip()):\n"
            "    sys.exit(2)\n"
            "if re.findall(r'[0-9]+', output) != numbers:\n"
            "    sys.exit(1)\n"
            "sys.exit(eval(output.strip()) != int(wanted))\n"
        ),
    ),
)
