"""Sources of the canaries: templates whose names and numbers differ in every round.

``$name`` and the like stand for names that a round chooses, ``$nonce`` for a number that occurs in
no other round, so that a program of one round is not known from another.
"""

# Python: standard input and output

# Needs Python 3.10 (``match``, ``bit_count``, ``zip(strict=)``) and UTF-8; writes to both streams,
# and leaves files behind, which no other program may find.
RIGHT = """\
import os, sys

def $first(values):
    match values:
        case []:
            return "none"
        case [int(one)]:
            return f"one {one.bit_count()}"
        case [head, *rest]:
            total = sum(a * b for a, b in zip(values, rest + [head], strict=True))
            return f"{len(values)} {total}"

print("stage $nonce", file=sys.stderr, flush=True)
$second = [int(word) for word in input().split()]
print($first($second) + " $nonce")
print(input()[::-1])
for folder in $folders:
    place = os.path.join(folder, f"$mark-{len($second)}")
    if os.path.exists(place):
        print("found", folder)
    try:
        with open(place, "w") as file:
            file.write("$nonce")
    except OSError:
        pass
"""

WRONG = """\
$first = input().split()
print(len($first), "$nonce")
"""

ECHO = """\
$first = input().split()
print(*$first, sep="\\n")
"""

SPECIAL_JUDGE = """\
def check(input, output, expected):
    $first = sorted(output.split())
    return $first == sorted(expected.split())
"""

# Two modes: the length and the bytes themselves, or the length and a checksum of a long input.
BYTES = """\
import sys, zlib
$first = sys.stdin.buffer.read()
$second = sys.stdout.buffer
print("$nonce", file=sys.stderr)
if len($first) > 9999:
    $second.write(b"%d %d $nonce" % (len($first), zlib.crc32($first)))
else:
    $second.write(b"%d\\n" % len($first) + $first)
"""

# One program, whose input says which limit it tries.
LIMITS = """\
import os, signal, sys, time
$first, $second = input().split()
if $first == "work":
    while time.process_time() < float($second):
        pass
elif $first == "wait":
    time.sleep(float($second))
elif $first == "space":
    $third = bytes(int($second))
elif $first == "print":
    line = "$nonce".ljust(63, "0") + "\\n"
    sys.stdout.write(line * (int($second) // 64))
    sys.exit(0)
print("done $nonce", flush=True)
if $first == "exit":
    os._exit(int($second))
if $first == "signal":
    os.kill(os.getpid(), int($second))
    time.sleep(1)
"""

PROCESSES = """\
import multiprocessing, os, subprocess, sys, threading

def $first(connection, number):
    connection.send(number * number)
    connection.close()

def main():
    $second = int(input())
    total = []
    thread = threading.Thread(target=lambda: total.append($second + 1))
    thread.start()
    thread.join()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=$first, args=(theirs, $second))
    child.start()
    total.append(ours.recv())
    child.join()
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    total.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    done = subprocess.run(["sh", "-c", "echo $$((5 + 6))"], capture_output=True, text=True)
    total.append(int(done.stdout))
    print(*total, "$nonce")

main()
"""

# Tries to have its case recorded as passed, and to find the expected output.
FORGING = """\
import os, re, signal, sys
$first = input()
pattern = re.compile(rb"$mark-[0-9]+")
found = []
for root in (".", "..", "/tmp", "/proc/self", f"/proc/{os.getppid()}"):
    for name in ("environ", "cmdline", "results", "answer", "spec", "input", "output"):
        try:
            with open(os.path.join(root, name), "rb") as file:
                found += pattern.findall(file.read(1 << 20))
        except OSError:
            pass
for number in range(3, 64):
    try:
        os.write(number, b"case 0 0 1 1 1 1 - 4 0\\n$nonce\\nend done 0 0\\n")
    except OSError:
        pass
if $kills:
    try:
        os.kill(os.getppid(), signal.SIGKILL)
    except OSError:
        pass
print(found[0].decode() if found else "$nonce")
"""

SYNTAX = """\
def $first(values:
    return sum(values) + $nonce

print($first([int(word) for word in input().split()])
"""

# Python: function tests. The answer is the function alone.

FUNCTION_RIGHT = """\
from collections.abc import Sequence

def $first(values, step=1):
    match values:
        case []:
            return {"sum": 0, "text": "$nonce"}
        case [int(), *rest]:
            total = sum(value * step for value in values)
            return {"sum": total, "text": "žluť-$nonce", "rest": tuple(rest)}
    raise ValueError(repr(values))
"""

FUNCTION_WRONG = """\
def $first(values, step=1):
    if not values:
        return {"sum": 0, "text": "$nonce"}
    return {"sum": sum(values), "text": "žluť-$nonce", "rest": ()}
"""

FUNCTION_EXIT = """\
import os, sys

def $first(values, step=1):
    sys.stdout.write("\\n")
    sys.stdout.flush()
    os._exit(0)
"""

FUNCTION_RAISING = """\
def $first(values, step=1):
    return [values][$nonce]
"""

FUNCTION_LIMITS = """\
import time

def $first(kind, amount):
    if kind == "work":
        while time.process_time() < amount:
            pass
    elif kind == "wait":
        time.sleep(amount)
    elif kind == "space":
        return len(bytes(amount))
    return amount
"""

# C++

CPP = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <tuple>
#include <unistd.h>
#if __cplusplus < 201703L
#error "needs C++17"
#endif

static std::optional<std::tuple<long, long>> $first(long a, long b) {
    if (a < 0) return std::nullopt;
    return std::tuple{a + b, a * b};
}

int main() {
    char word[16];
    double amount = 0;
    if (std::scanf("%15s %lf", word, &amount) != 2) return 9;
    std::fprintf(stderr, "stage $nonce\\n");
    if (!std::strcmp(word, "work")) {
        while (double(std::clock()) / CLOCKS_PER_SEC < amount) {}
    } else if (!std::strcmp(word, "space")) {
        volatile char *$second = new char[static_cast<size_t>(amount)];
        $second[0] = 1;
    }
    if (auto found = $first(long(amount) % 1000, 7); found) {
        auto [sum, product] = *found;
        std::printf("%ld %ld $nonce\\n", sum, product);
        std::fflush(stdout);
    }
    return std::strcmp(word, "exit") ? 0 : int(amount);
}
"""

CPP_SYNTAX = """\
#include <cstdio>
int main() {
    int $first = $nonce
    std::printf("%d\\n", $first);
}
"""
