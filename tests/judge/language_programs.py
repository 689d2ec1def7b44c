"""Programs of every kind in every language, with the status that each must get."""

import shutil

from shared.harness.languages import LANGUAGES
from shared.statuses import FinalStatus as Status
from shared.statuses import VerdictDetail

# Kind -> required status, and detail if it is fixed.
KINDS: dict[str, tuple[Status, str | None]] = {
    "right": (Status.SUCCESS, None),
    "deep recursion": (Status.SUCCESS, None),
    "threads": (Status.SUCCESS, None),
    "wrong": (Status.WRONG_ANSWER, None),
    "reads nothing": (Status.WRONG_ANSWER, None),
    "endless": (Status.TIMEOUT, None),
    "many processes": (Status.TIMEOUT, None),
    "memory-hungry": (Status.RUNTIME_ERROR, VerdictDetail.MEMORY_LIMIT),
    "compile error": (Status.SYNTAX_ERROR, None),
    "endless output": (Status.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT),
    "runtime error": (Status.RUNTIME_ERROR, None),
    "exit code": (Status.RUNTIME_ERROR, None),
}
_OTHERS = {("go", "many processes"): (Status.RUNTIME_ERROR, None)}
# The input has numbers; the expected output is their count and their sum.
SMALL = "3 4 5\n", "3 12\n"
LARGE = " ".join(map(str, range(100_000))) + "\n", f"100000 {sum(range(100_000))}\n"
DEPTH = 50_000

_PYTHON = """\
import sys, os, threading
def deep(n):
    return n and 1 + deep(n - 1)
def main():
    %s
main()"""
_CPP = """\
#include <bits/stdc++.h>
#include <unistd.h>
using namespace std;
volatile int zero = 0;
long deep(long n) { return n ? 1 + zero + deep(n - 1) : 0; }
int main() {
    %s
}"""
_JAVA = """\
import java.util.*;
import java.io.*;
public class %s {
    static class Pair { int a, b; }
    static int deep(int n) { return n == 0 ? 0 : 1 + deep(n - 1); }
    public static void main(String[] arguments) throws Exception {
        %s
    }
}"""
_NODE = """\
const fs = require('fs');
function deep(n) { return n ? 1 + deep(n - 1) : 0; }
async function main() {
  %s
}
main();"""
_RUST = """\
use std::io::{self, Read, Write};
fn deep(n: u64) -> u64 {
    let local = [n; 4];
    if n == 0 { 0 } else { deep(n - 1) + local[n as usize & 3] - n + 1 }
}
fn main() {
    let _ = (deep(1), io::stdout().flush());
    let mut text = String::new();
    %s
}"""
_GO = """\
package main
import ("bufio"; "fmt"; "os"; "os/exec"; "sync")
var _ = bufio.NewReader
var _ = exec.Command
var _ sync.Mutex
func deep(n int) int { if n == 0 { return 0 }; return 1 + deep(n-1) }
func main() {
    fmt.Fprint(os.Stderr, "")
    %s
}"""

_READ = {
    "python": "values = [int(w) for w in sys.stdin.read().split()]\n    "
    "print(len(values), sum(values))",
    "cpp": "long n = 0, sum = 0, x; while (cin >> x) { n++; sum += x; } "
    'cout << n << " " << sum << endl;',
    "java": "long n = 0, sum = 0; "
    "var in = new StreamTokenizer(new BufferedInputStream(System.in)); "
    "while (in.nextToken() != StreamTokenizer.TT_EOF) { n++; sum += (long) in.nval; } "
    'System.out.println(n + " " + sum);',
    "nodejs": "const v = fs.readFileSync(0, 'utf8').trim().split(/\\s+/).map(Number); "
    "console.log(v.length, v.reduce((a, b) => a + b));",
    "rust": "io::stdin().read_to_string(&mut text).unwrap(); "
    "let v: Vec<u64> = text.split_whitespace().map(|w| w.parse().unwrap()).collect(); "
    'println!("{} {}", v.len(), v.iter().sum::<u64>());',
    "go": "in, n, sum, x := bufio.NewReader(os.Stdin), 0, 0, 0; "
    "for { if _, err := fmt.Fscan(in, &x); err != nil { break }; n++; sum += x }; "
    "fmt.Println(n, sum)",
}
_BODIES: dict[str, dict[str, str]] = {
    "python": {
        "deep recursion": f"sys.setrecursionlimit(10**6); deep({DEPTH // 50}); %s",
        "threads": "t = [threading.Thread(target=deep, args=(9,)) for _ in range(4)]\n    "
        "[x.start() for x in t]; [x.join() for x in t]; %s",
        "wrong": "print(len(sys.stdin.read().split()), 0)",
        "reads nothing": "print(0, 0)",
        "endless": "while True: pass",
        "many processes": "while True:\n        try: os.fork()\n        except OSError: pass",
        "memory-hungry": "a = []\n    while True: a.append(bytes(10**7))",
        "compile error": "for for",
        "endless output": "while True: print('x' * 1000)",
        "runtime error": "[][1]",
        "exit code": "print(3, 12, flush=True); os._exit(3)",
    },
    "cpp": {
        "deep recursion": f"deep({DEPTH}); %s",
        "threads": "vector<thread> t; for (int i = 0; i < 4; i++) t.emplace_back([] { deep(9); }); "
        "for (auto &x : t) x.join(); %s",
        "wrong": "long n = 0, x; while (cin >> x) n++; cout << n << endl;",
        "reads nothing": "cout << 0 << endl;",
        "endless": "while (!zero) {}",
        "many processes": "while (1) fork();",
        "memory-hungry": "vector<vector<char>> a; while (1) a.emplace_back(10000000, 1);",
        "compile error": "return missing;",
        "endless output": "while (1) puts(string(1000, 'x').c_str());",
        "runtime error": "vector<int> v; return v.at(1);",
        "exit code": 'cout << "3 12" << endl; return 3;',
    },
    "java": {
        "deep recursion": f"deep({DEPTH}); %s",
        "threads": "var t = new ArrayList<Thread>(); for (int i = 0; i < 4; i++) "
        "t.add(new Thread(() -> deep(9))); for (var x : t) x.start(); for (var x : t) x.join(); %s",
        "wrong": "var s = new Scanner(System.in); int n = 0; while (s.hasNextInt()) "
        "{ s.nextInt(); n++; } System.out.println(n);",
        "reads nothing": "System.out.println(0);",
        "endless": "while (arguments.length == 0) {}",
        "many processes": "while (arguments.length == 0) "
        "try { new Thread(() -> { while (true) {} })"
        ".start(); } catch (Throwable e) {}",
        "memory-hungry": "var a = new ArrayList<byte[]>(); while (true) a.add(new byte[10000000]);",
        "compile error": "return missing;",
        "endless output": 'while (true) System.out.println("x".repeat(1000));',
        "runtime error": "int[] a = {}; a[1] = 2;",
        "exit code": 'System.out.println("3 12"); System.exit(3);',
    },
    "nodejs": {
        "deep recursion": f"deep({DEPTH}); %s",
        "threads": "const { Worker } = require('worker_threads'); await new Promise(done => "
        "new Worker('1', { eval: true }).on('exit', done)); "
        "await fs.promises.readFile('/etc/passwd'); %s",
        "wrong": "console.log(fs.readFileSync(0, 'utf8').length);",
        "reads nothing": "console.log(0);",
        "endless": "while (true) {}",
        "many processes": "while (true) try { require('child_process').spawn('sleep', ['99']) } "
        "catch {}",
        "memory-hungry": "const a = []; while (true) a.push(new Array(1e6).fill(1.5));",
        "compile error": "for for",
        "endless output": "while (true) fs.writeSync(1, 'x'.repeat(1000));",
        "runtime error": "undefined.x",
        "exit code": "console.log(3, 12); process.exitCode = 3;",
    },
    "rust": {
        "deep recursion": f"assert_eq!(deep({DEPTH}), {DEPTH}); %s",
        "threads": "let t: Vec<_> = (0..4).map(|_| std::thread::spawn(|| deep(9))).collect(); "
        "for x in t { x.join().unwrap(); } %s",
        "wrong": 'println!("{}", text.len());',
        "reads nothing": 'println!("0 {}", text);',
        "endless": "while text.len() == 0 { std::hint::spin_loop(); }",
        "many processes": 'loop { let _ = std::process::Command::new("sleep").arg("99").spawn(); '
        'if text == "1" { return; } }',
        "memory-hungry": "let mut a = vec![]; loop { a.push(vec![1u8; 10_000_000]); "
        'if a.len() == 1 << 40 { println!("{}", text); } }',
        "compile error": "missing();",
        "endless output": 'loop { println!("{}", "x".repeat(1000)); if text == "1" { return; } }',
        "runtime error": 'let v: Vec<i32> = vec![]; println!("{}{}", v[text.len()], text);',
        "exit code": 'println!("3 12{}", text); std::process::exit(3);',
    },
    "go": {
        "deep recursion": f"deep({DEPTH}); %s",
        "threads": "var all sync.WaitGroup; for i := 0; i < 4; i++ { all.Add(1); "
        "go func() { deep(9); all.Done() }() }; all.Wait(); %s",
        "wrong": "fmt.Println(3)",
        "reads nothing": "fmt.Println(0)",
        "endless": "for {\n}",
        # Its runtime may fail for lack of threads, so it ends with the first failure.
        "many processes": 'for { if err := exec.Command("sleep", "99").Start(); err != nil '
        "{ panic(err) } }",
        "memory-hungry": "var a [][]byte; for { b := make([]byte, 10000000); b[9] = 1; "
        "a = append(a, b) }",
        "compile error": "missing()",
        "endless output": 'for { fmt.Printf("%1000d\\n", 1) }',
        "runtime error": "var v []int; fmt.Println(v[len(os.Args)])",
        "exit code": 'fmt.Println("3 12"); os.Exit(3)',
    },
}
_FRAMES = {"python": _PYTHON, "cpp": _CPP, "nodejs": _NODE, "rust": _RUST, "go": _GO}


# Where programs in a sandbox find commands.
_PATH = "/usr/local/bin:/usr/bin:/bin"


def is_installed(language: str) -> bool:
    """Whether programs find the toolchain of a language in a sandbox on this machine."""
    return all(shutil.which(tool, path=_PATH) for tool in LANGUAGES[language].tools)


def expected(language: str, kind: str) -> tuple[Status, str | None]:
    """Return the status and detail of a program."""
    return _OTHERS.get((language, kind), KINDS[kind])


def program(language: str, kind: str, name: str = "Main") -> str:
    """The program of a kind; ``name`` is that of the class in Java."""
    body = _BODIES[language].get(kind, "%s").replace("%s", _READ[language])
    if language == "java":
        return _JAVA % (name, body)
    return _FRAMES[language] % body
