"""Programs that work for as many CPU seconds as their input says, each in another place.

They print ``done``. A limit of CPU time must hold for the sum, wherever the work is done.
"""

import textwrap

_HEAD = """
import ctypes, os, signal, subprocess, sys, threading, time
seconds = float(input())

def burn(amount, clock=time.process_time):
    until = clock() + amount
    while clock() < until:
        for _ in range(5000): pass  # in the program, not in the kernel's clock

def fork(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

ready, report = os.pipe()
def told():  # reads until all writers are gone
    os.close(report)
    while os.read(ready, 100): pass
"""


def _program(code: str) -> str:
    return _HEAD + textwrap.dedent(code) + "\nprint('done', flush=True)\n"


PYTHON = {
    "the process itself": _program("burn(seconds)"),
    "threads": _program(
        """
        work = lambda: burn(seconds / 2, time.thread_time)
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """
    ),
    "a child that is waited for": _program("os.waitpid(fork(lambda: burn(seconds)), 0)"),
    "a child whose end is ignored": _program(
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        fork(lambda: burn(seconds))
        told()
        """
    ),
    "short children, one after another": _program(
        """
        for _ in range(int(seconds / 0.008)):
            os.waitpid(fork(lambda: burn(0.005)), 0)
        """
    ),
    "a relay": _program(
        """
        def relay(left):
            while True:
                burn(0.005)
                left -= 0.008
                if left <= 0 or os.fork(): os._exit(0)
        fork(lambda: relay(seconds))
        told()
        """
    ),
    "a daemon": _program(
        """
        def daemon():
            os.setsid()
            fork(lambda: burn(seconds))
        os.waitpid(fork(daemon), 0)
        told()
        """
    ),
    "another interpreter": _program(
        """
        code = f'import time\\nwhile time.process_time() < {seconds}:\\n for _ in range(5000): pass'
        subprocess.run([sys.executable, '-c', code], check=True)
        """
    ),
    "a clone without a signal": _program(
        """
        pid = ctypes.CDLL(None).syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine],
                                        0, 0, 0, 0, 0)
        assert pid >= 0
        if pid == 0:
            burn(seconds)
            os._exit(0)
        told()
        """
    ),
    "a child that outlives the program": _program(
        """
        def work():
            burn(max(0, seconds - 0.05))
            os.write(report, b'x')
            burn(0.05)
        fork(work)
        os.read(ready, 1)
        """
    ),
}

_CPP_HEAD = """
#include <cstdio>
#include <ctime>
#include <csignal>
#include <thread>
#include <unistd.h>
#include <sys/wait.h>
static double now(clockid_t id) { timespec t; clock_gettime(id, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void burn(double amount, clockid_t id = CLOCK_PROCESS_CPUTIME_ID) {
    for (double until = now(id) + amount; now(id) < until;)
        for (volatile int count = 0; count < 100000;) count = count + 1;
}
int main() {
    double seconds; char byte; int ends[2];
    if (scanf("%lf", &seconds) != 1 || pipe(ends)) return 1;
"""  # noqa: E501


def _cpp(code: str) -> str:
    return _CPP_HEAD + textwrap.dedent(code) + '\nputs("done");\n}\n'


CPP = {
    "C++: threads": _cpp(
        """
        auto work = [=] { burn(seconds / 2, CLOCK_THREAD_CPUTIME_ID); };
        std::thread one(work), two(work);
        one.join(); two.join();
        """
    ),
    "C++: a child whose end is ignored": _cpp(
        """
        signal(SIGCHLD, SIG_IGN);
        if (fork() == 0) { burn(seconds); _exit(0); }
        close(ends[1]);
        if (read(ends[0], &byte, 1)) return 1;
        """
    ),
    "C++: vfork": _cpp(
        """
        pid_t pid = vfork();
        if (pid == 0) { burn(seconds); _exit(0); }
        waitpid(pid, nullptr, 0);
        """
    ),
}
