"""Malicious answers to a problem (print twice a number), and the allowed verdicts of each."""

import textwrap
from dataclasses import dataclass

from shared.statuses import FinalStatus

SUCCESS, WRONG = FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER
ERROR, LATE = FinalStatus.RUNTIME_ERROR, FinalStatus.TIMEOUT


@dataclass(frozen=True)
class Hostile:
    """``dangerous`` ones run only where they are confined to a process namespace."""

    code: str
    verdicts: frozenset[FinalStatus]
    dangerous: bool = False


def _answer(code: str, *verdicts: FinalStatus, dangerous: bool = False) -> Hostile:
    head = "import ctypes, os, sys, time, signal, resource, threading\nn = int(input())\n"
    return Hostile(head + textwrap.dedent(code).strip(), frozenset(verdicts), dangerous)


_TO_OTHERS = """
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        try: os.kill(int(name), {})
        except OSError: pass
"""
# Their output is right, so SUCCESS is the right verdict for what the harness copes with.
ANSWERS = {
    # Processes
    "fork bomb": _answer(
        """
        while True:
            try: os.fork()
            except OSError: pass
        """, LATE, ERROR, dangerous=True,
    ),
    "fork bomb that answers": _answer(
        """
        print(n * 2, flush=True)
        if os.fork() == 0:
            while True:
                try:
                    if os.fork() == 0: os.setsid()
                except OSError: pass
        os._exit(0)
        """, SUCCESS, ERROR, LATE, dangerous=True,
    ),
    "daemon": _answer(
        """
        print(n * 2)
        sys.stdout.flush()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(1, 32):
                    try: signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError): pass
                time.sleep(1000)
            os._exit(0)
        """, SUCCESS,
    ),
    "right only after the end": _answer(
        """
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.2)
            os.write(1, b"%d\\n" % (n * 2))
        os._exit(0)
        """, WRONG,
    ),
    "zombies": _answer(
        """
        for _ in range(200):
            try:
                if os.fork() == 0: os._exit(0)
            except OSError: break
        print(n * 2)
        """, SUCCESS,
    ),
    "threads": _answer(
        """
        try:
            while True: threading.Thread(target=time.sleep, args=(1000,)).start()
        except RuntimeError: print(n * 2)
        """, LATE,
    ),
    "parent killed": _answer("os.kill(os.getppid(), 9); print(n * 2)", ERROR, dangerous=True),
    "parent stopped": _answer(
        "os.kill(os.getppid(), 19); print(n * 2)", LATE, ERROR, dangerous=True
    ),
    # Where signals stay within the answer there is nobody to kill.
    "all killed": _answer("os.kill(-1, 9); print(n * 2)", ERROR, SUCCESS, dangerous=True),
    "group killed": _answer("os.killpg(0, 9); print(n * 2)", ERROR),
    "others killed": _answer(
        f"{_TO_OTHERS.format(9)}print(n * 2)", ERROR, SUCCESS, dangerous=True
    ),
    "others stopped": _answer(
        f"{_TO_OTHERS.format(19)}print(n * 2)", LATE, ERROR, SUCCESS, dangerous=True
    ),
    # Time
    "sleeps": _answer("print(n * 2, flush=True); time.sleep(1000)", LATE),
    "ignores signals": _answer(
        """
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
        """, LATE,
    ),
    "limits raised": _answer(
        """
        for kind in range(16):
            try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2)
            except (OSError, ValueError): pass
        while True: pass
        """, LATE,
    ),
    "works in a child": _answer(
        """
        r, w = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                while time.process_time() < 1.5: pass
                os.write(w, b'x')
            os._exit(0)
        os.wait(); os.read(r, 1)
        print(n * 2)
        """, LATE,
    ),
    "a misleading name": _answer(
        "open('/proc/self/comm', 'w').write(') S 1 1 1'); print(n * 2)\nwhile True: pass",
        LATE, ERROR,
    ),
    "finalizer hangs": _answer(
        "class A:\n  def __del__(self):\n    while True: pass\na = A(); print(n * 2)", LATE
    ),
    "shutdown of threads hangs": _answer(
        "threading._shutdown = lambda: time.sleep(1000); print(n * 2)", LATE
    ),
    # Memory and space
    "memory": _answer("a = []\nwhile True: a.append(bytearray(10**7))", ERROR),
    "stack": _answer(
        "sys.setrecursionlimit(10**9)\ndef f(x): return [f(x)]\nx = []\n"
        "for _ in range(10**6): x = [x]\nrepr(x)", ERROR, LATE,
    ),
    "memory shared": _answer(
        """
        import mmap
        kept = []
        try:
            while True:
                kept.append(mmap.mmap(-1, 10**7)); kept[-1].write(bytes(10**7))
        except OSError: kept.clear()
        print(n * 2)
        """, SUCCESS, ERROR,
    ),
    "output": _answer("while True: os.write(1, b'x' * 65536)", ERROR),
    "errors": _answer(
        "print(n * 2, flush=True)\nwhile True: os.write(2, b'x' * 65536)", LATE
    ),
    "sparse output": _answer("os.ftruncate(1, 2**40)", ERROR),
    "files": _answer(
        """
        for i in range(100): open(f'file{i}', 'wb').write(bytes(10**6))
        print(n * 2)
        """, SUCCESS,
    ),
    "/tmp filled": _answer(
        """
        try:
            for i in range(300): open(f'/tmp/{n}-{i}', 'wb').write(bytes(10**6))
        except OSError: pass
        print(n * 2)
        """, SUCCESS, dangerous=True,
    ),
    "descriptors": _answer(
        """
        try:
            while True: os.dup(0)
        except OSError: pass
        print(n * 2)
        """, SUCCESS,
    ),
    # Files
    "all removed": _answer(
        """
        import shutil
        shutil.rmtree('..', ignore_errors=True); shutil.rmtree('.', ignore_errors=True)
        print(n * 2)
        """, SUCCESS, dangerous=True,
    ),
    "folder locked": _answer(
        """
        os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0); os.chmod('.', 0)
        print(n * 2)
        """, SUCCESS,
    ),
    "outer folder locked": _answer(
        """
        try: os.chmod('..', 0)
        except OSError: pass
        print(n * 2)
        """, SUCCESS, WRONG, ERROR,
    ),
    "folder replaced": _answer(
        """
        here = os.getcwd()
        try: os.rename(here, here + 'x'); os.symlink('/tmp', here)
        except OSError: pass
        print(n * 2)
        """, SUCCESS,
    ),
    "deep folders": _answer(  # too deep for a look at its share of the disk, if one comes
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')\nprint(n * 2)", SUCCESS, ERROR
    ),
    "odd names": _answer(
        """
        for name in ('a\\nb', '\\x1b[0m', '-rf', 'x' * 255, b'\\xff'): open(name, 'w').close()
        os.mkfifo('pipe'); os.symlink('loop', 'loop'); os.symlink('/', 'root')
        print(n * 2)
        """, SUCCESS,
    ),
    # The harness
    "descriptors closed": _answer("os.closerange(0, 1024); print(n * 2)", ERROR),
    "results written": _answer(
        """
        for how in ('w', 'a', 'r+'):
            try: open('../results', how).write('end done 0 0 ' + '0' * 32 + '\\n\\n')
            except OSError: pass
        print(n)
        """, WRONG,
    ),
    "results replaced by a link": _answer(
        """
        try: os.unlink('../results'); os.symlink('/etc/passwd', '../results')
        except OSError: pass
        print(n * 2)
        """, SUCCESS,
    ),
    "results written later": _answer(
        """
        print(n)
        sys.stdout.flush()
        if os.fork() == 0:
            os.setsid()
            while True:
                try: open('../results', 'w').write('end done 0 0 ' + '0' * 32 + '\\n\\n')
                except OSError: pass
        """, WRONG,
    ),
    "shell's report": _answer(
        """
        for pid in os.listdir('/proc'):
            for fd in '3', '4', '5', '6', '7', '8':
                try: os.write(os.open(f'/proc/{pid}/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK),
                              b'E 0\\n0 0 0 clean\\n')
                except OSError: pass
        print(n)
        """, WRONG, ERROR, dangerous=True,
    ),
    "answer replaced": _answer(
        """
        for name in os.listdir('..'):
            try: open('../' + name, 'w').write('print(4)')
            except OSError: pass
        open('solution.py', 'w').write('print(4)')
        print(n)
        """, WRONG, ERROR,
    ),
    "built-in functions replaced": _answer(
        """
        import builtins
        show = print
        for name in 'exec compile open print __import__ getattr isinstance len type str'.split():
            setattr(builtins, name, lambda *_, **__: None)
        os._exit = sys.exit = os.kill = lambda *_: None
        show(n * 2)
        """, SUCCESS,
    ),
    "ends early": _answer("os._exit(0)", WRONG),
}  # fmt: skip

# Prints which processes of the harness it could look into; its own is not one of them.
PRIES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        words = open(f'/proc/{pid}/cmdline').read().split('\\0')
        harness = 'plumbline-slot' in words or any(word.endswith('.py') for word in words[:2])
        if int(pid) == os.getpid() or not harness:
            continue
        found.append(pid)
    except OSError:
        continue
    for name in 'mem', 'environ', 'fd', 'maps', 'auxv':
        try:
            path = f'/proc/{pid}/{name}'
            # Descriptors' numbers tell nothing: every process of one user may list them.
            print('READ', path, [os.readlink(f'{path}/{fd}') for fd in os.listdir(path)]
                  if name == 'fd' else open(path, 'rb').read(1))
        except OSError:
            pass
    for fd in range(20):
        try:
            print('OPENED', os.open(f'/proc/{pid}/fd/{fd}', os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            pass
    if libc.ptrace(16, int(pid), 0, 0) == 0:
        print('TRACED', pid)
        libc.ptrace(17, int(pid), 0, 0)
print(min(len(found), 2), 'processes')  # others may run beside it
"""
