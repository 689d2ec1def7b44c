"""Nothing passes from one case of an answer to the next one in the same call."""

import base64
import re
import secrets

import pytest

from tests.sandbox.channels import CHANNELS, PATTERN, Channel
from tests.sandbox.conftest import needs_cpp
from tests.sandbox.test_channels import (
    NAMESPACES,
    OTHER_RUNGS,
    RUNGS,
    Programs,
    Rung,
    Start,
    extra,
    run_cases,
    start,
)

__all__ = ["extra", "start"]

# Ways that only the cases of one answer have.
MORE = {
    "folder above": Channel(
        "open('../' + MESSAGE, 'w').close(); attempt(os.mkdir, '../folder')\n"
        "attempt(os.chmod, '..', 0o711)",
        "show(sorted(attempt(os.listdir, '..') or []), oct(os.stat('..').st_mode))",
    ),
    "own folder": Channel(
        "open(MESSAGE, 'w').close()\n"
        "attempt(os.setxattr, '.', 'user.m', b'1'); attempt(os.chmod, 'solution.py', 0)",
        "show(sorted(os.listdir('.')), oct(os.stat('.').st_mode),"
        " attempt(os.listxattr, '.'), oct(os.stat('solution.py').st_mode))",
    ),
    "results": Channel(
        "print(MESSAGE)", "show([len(read('../' + n)) for n in attempt(os.listdir, '..') or []])"
    ),
    "streams": Channel(
        "attempt(fcntl.fcntl, 0, fcntl.F_SETFL, os.O_NONBLOCK)\n"
        "attempt(fcntl.fcntl, 1, 1031, 1 << 18)\n"
        "attempt(os.fchmod, 0, 0); attempt(os.fchmod, 1, 0); attempt(os.utime, 0, (STAMP, STAMP))\n"
        "attempt(os.setxattr, 0, 'user.m', b'1'); attempt(os.lseek, 0, 5, 0)\n"
        "attempt(fcntl.fcntl, 0, fcntl.F_SETLEASE, fcntl.F_RDLCK)\n"
        "attempt(fcntl.flock, 0, fcntl.LOCK_EX)",
        "show([(fcntl.fcntl(fd, fcntl.F_GETFL), oct(os.fstat(fd).st_mode),\n"
        "       os.fstat(fd).st_mtime == STAMP, attempt(fcntl.fcntl, fd, 1032))\n"
        "      for fd in (0, 1, 2)], attempt(os.listxattr, 0), attempt(os.lseek, 0, 0, 1))",
    ),
    "descriptors": Channel(
        "for fd in range(3, 50):\n"
        "    attempt(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_APPEND); attempt(os.write, fd, b'x')\n"
        "    attempt(os.lseek, fd, 7, 0)",
        "show(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:4])",
    ),
}


def program(prelude: str, channel: Channel) -> str:
    parts = {"leave": channel.leave, "look": channel.look}
    return (
        f"{prelude}\nACTION, _, MESSAGE = sys.stdin.readline().strip().partition(' ')\n"
        f"os.lseek(0, 0, 0)\nexec({parts!r}[ACTION])\n"
    )


async def seen(programs: Programs, channel: Channel) -> list[str]:
    """What cases see before and after another one, or an error."""
    message = f"MSG-{secrets.token_hex(16)}"
    inputs = ["look", f"leave {message}", "look", f"leave {message}", f"leave {message}", "look"]
    code = program(programs.prelude, channel)
    status, result = await run_cases(programs.sandbox, code, inputs)
    found = []
    for place in ("0", "2", "5"):
        case = result["cases"].get(place) if status == 200 else None
        if case is None:
            # The rest is left to another call, or the slot was replaced.
            assert place != "0" and result["end"] in ("full", "lost", None), (status, result)
        else:
            assert case["exit_code"] == 0, case
            found.append(base64.b64decode(case["stdout"]).decode())
    return found


async def leaks(programs: Programs) -> dict[str, list[str]]:
    every = {**CHANNELS, **MORE}
    found = {name: await seen(programs, channel) for name, channel in every.items()}
    return {
        name: looks
        for name, looks in found.items()
        if len(set(looks)) > 1 or any(re.search(PATTERN, look) for look in looks)
    }


@pytest.mark.parametrize("rung", [*RUNGS, *OTHER_RUNGS])
async def test_no_channel_to_the_next_case(start: Start, rung: Rung):
    programs = await start(rung)
    assert await leaks(programs) == {}


CPP = """
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main() {
    std::string act;
    std::cin >> act;
    if (act == "append") {
        chmod("../program", 0755);
        std::ofstream("../program", std::ios::app) << "x";
    }
    if (act == "replace") { rename("../program", "../old"); std::ofstream("../program") << "x"; }
    if (act == "remove") unlink("../program");
    struct stat found;
    stat("../program", &found);
    if (act == "look") std::cout << found.st_size << " " << (found.st_mode & 0777);
}
"""


@needs_cpp
@pytest.mark.parametrize("act", ["append", "replace", "remove"])
async def test_the_compiled_program_stays_as_it_is(start: Start, act: str):
    programs = await start(NAMESPACES)
    _, result = await run_cases(programs.sandbox, CPP, ["look", act, "look"], "cpp")
    # The last case is left to a call of its own.
    assert (result["end"], list(result["cases"])) == ("full", ["0", "1"])
