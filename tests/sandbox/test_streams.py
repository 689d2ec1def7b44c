"""Standard streams behave as for a person who pipes, in every isolation and both endpoints.

``tests/judge/test_harness_fidelity.py`` compares many more programs with the shell's pipes.
"""

import base64
import shutil
from dataclasses import dataclass

from tests.sandbox.conftest import Sandbox
from tests.sandbox.test_channels import run_cases


@dataclass(frozen=True)
class Piped:
    """A program, and what ``echo input | program | cat`` prints."""

    code: str
    printed: str
    language: str = "python"
    stdin: str = "input\n"


SHELL = (
    "echo one; echo two > /dev/stdout; echo three >> /dev/stdout; cat /dev/stdin | tee /dev/stdout"
    " | wc -l; : > /dev/stdout; echo four > /proc/self/fd/1; echo five >&1"
)
SHELL_PRINTS = "one\ntwo\nthree\n2\nfour\nfive\n"
CPP = """
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <sys/epoll.h>
#include <unistd.h>
int main() {
    epoll_event event{EPOLLIN, {}};
    int poll = epoll_create1(0);
    if (epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event)) return 1;
    if (epoll_wait(poll, &event, 1, 5000) != 1) return 2;
    std::string line;
    std::getline(std::cin, line);
    std::cout << "read " << line << std::endl;
    std::ofstream("/dev/stdout") << "stream" << std::endl;
    freopen("/dev/stdout", "a", stdout);
    puts("reopened");
    fflush(stdout);
    if (ftruncate(1, 0) == 0) return 3;
    return system("echo shell > /dev/stdout");
}
"""

PROGRAMS = {
    "open": Piped(
        "print('a', flush=True)\nfor mode in 'wawa':\n"
        "  print(mode, file=open('/dev/stdout', mode))\n"
        "print(open('/dev/stdin').read(), file=open('/proc/self/fd/1', 'w'))",
        "a\nw\na\nw\na\ninput\n\n",
    ),
    "bash": Piped(SHELL, SHELL_PRINTS, "bash"),
}
if shutil.which("g++"):
    PROGRAMS["C++"] = Piped(CPP, "read input\nstream\nreopened\nshell\n", "cpp")


async def test_run_code(every_isolation: Sandbox):
    for program in PROGRAMS.values():
        answer = await every_isolation.run(program.code, program.language, stdin=program.stdin)
        result = answer["run_result"]
        ended = result["stdout"], result["stderr"], result["return_code"]
        assert ended == (program.printed, "", 0), program.code


async def test_cases(every_isolation: Sandbox):
    for program in PROGRAMS.values():
        if program.language == "bash":
            continue  # it has no cases
        inputs = [program.stdin] * 2
        _, result = await run_cases(every_isolation, program.code, inputs, program.language)
        for case in result["cases"].values():
            found = base64.b64decode(case["stdout"]).decode(), case["stderr"], case["exit_code"]
            assert found == (program.printed, "", 0), program.code
        assert len(result["cases"]) == 2


async def test_output_limit(every_isolation: Sandbox):
    """Up to the limit an output is complete, whoever prints it; one byte more is too much."""
    code = (
        "import os, sys\nhow, size = input().split()\nsize = int(size)\n"
        "if how == 'print': print('x' * size, end='')\n"
        "if how == 'child' and os.fork() == 0: os.write(1, b'x' * size); os._exit(0)\n"
        "if how == 'shell': os.system(f'head -c {size} /dev/zero > /dev/stdout')\n"
        "if how == 'error': print('x' * size, file=sys.stderr)\n"
    )
    limit = 300_000
    inputs = [f"{how} {size}" for how in ("print", "child", "shell") for size in (limit, limit + 1)]
    _, result = await run_cases(every_isolation, code, [*inputs, "error 9000000"], output=limit)
    *loud, errors = result["cases"].values()
    assert [case["limit"] for case in loud] == [None, "output"] * 3
    assert [len(base64.b64decode(case["stdout"])) for case in loud] == [limit, 0] * 3
    assert (errors["exit_code"], errors["limit"], len(errors["stderr"])) == (0, None, 4096)
    endless = "import os\nwhile True: os.write(1, b'x' * 100000)"
    _, result = await run_cases(every_isolation, endless, ["", ""], output=limit, cpu=20)
    assert [case["limit"] for case in result["cases"].values()] == ["output"] * 2
