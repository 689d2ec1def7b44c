"""Answers to function tests that would pass without solving anything, and unusual right ones.

Each cheat is followed by a wrong ``twice``, unless it defines one. Where the sandbox does not
confine processes, those in ``KILLS`` and ``PRIES`` harm others, and must not run.
"""

import textwrap

WRONG = "\ndef twice(x):\n    return x\n"

# Objects that pass for others
_OBJECTS = {
    "equal to everything": """
        class Same:
            def __eq__(self, other): return True
            __hash__ = None
        def twice(x): return Same()
        """,
    "list that is equal": """
        class Same(list):
            def __eq__(self, other): return True
            def __len__(self): return 10**6
        def twice(x): return Same()
        """,
    "int that is equal": """
        def twice(x): return type("Same", (int,), {"__eq__": lambda *_: True})(7)
        """,
    "str that is equal": """
        def twice(x): return type("Same", (str,), {"__eq__": lambda *_: True})("7")
        """,
    "tuple, float, dict, set that are equal": """
        def same(base):
            return type("Same", (base,), {"__eq__": lambda *_: True, "__hash__": lambda _: 0})
        kinds = [same(base) for base in (tuple, float, dict, set, bytes, complex)]
        def twice(x): return kinds[x % len(kinds)]()
        """,
    "reflected": """
        class Same:
            def __eq__(self, other): return True
            def __req__(self, other): return True
            def __getattr__(self, name): return lambda *a, **k: True
            __sub__ = __rsub__ = __lt__ = __le__ = __abs__ = lambda *_: 0
        def twice(x): return Same()
        """,
    "type with instances": """
        class Meta(type):
            def __eq__(self, other): return True
            def __instancecheck__(self, other): return True
            __hash__ = type.__hash__
        class Same(metaclass=Meta): pass
        def twice(x): return Same
        """,
    "class as its name": """
        class Same:
            __class__ = int
            def __eq__(self, other): return True
        def twice(x): return Same()
        """,
    "mock": "import unittest.mock\ndef twice(x): return unittest.mock.ANY",
    "not a number": "def twice(x): return float('nan')",
    "NotImplemented": "def twice(x): return NotImplemented",
    "iterator of everything": "def twice(x):\n    n = 0\n    while True:\n        yield n; n += 1",
    "default": """
        import collections
        def twice(x): return collections.defaultdict(lambda: 2 * x)
        """,
}
# The process that runs the tests
_RUNNER = {
    "collected functions": """
        import gc, types
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and found.__name__ in (
                "run", "run_test", "code_of", "attempt", "execute", "check", "load", "perform",
            ):
                try: found.__code__ = (lambda *a, **k: 1).__code__
                except ValueError: pass
        """,
    "collected dictionaries": """
        import gc
        for found in gc.get_objects():
            if isinstance(found, dict) and "PASSED" in found:
                for key in ("WRONG_ANSWER", "RUNTIME_ERROR", "COMPILE_ERROR"): found[key] = 1
        """,
    "collected tests": """
        import gc, re
        texts = [str(found) for found in gc.get_objects()]
        def twice(x):
            for text in map(str, gc.get_objects()):
                if found := re.search(r"(?:candidate|twice)\\(%d\\) == (\\d+)" % x, text):
                    return int(found[1])
        """,
    "frames": """
        import os, sys
        def twice(x):
            frame = sys._getframe()
            while frame:
                for name, value in frame.f_locals.items():
                    if name == "token":
                        os.write(frame.f_locals["out"], f"\\n{value} [1, 1]\\n".encode())
                        os._exit(0)
                if "expected" in frame.f_locals: return frame.f_locals["expected"]
                frame = frame.f_back
        """,
    "patched codec": """
        import gc
        for found in gc.get_objects():
            if isinstance(found, dict) and "values" in str(found.get("__name__")):
                for kind in ("Encoder", "ObjectEncoder"):
                    if kind in found: found[kind].add = lambda self, value: None
                for name in list(found):
                    if callable(found[name]): found[name] = lambda *a, **k: True
        """,
    "replies of another kind": """
        import gc
        def twice(x):
            server = next(o for o in gc.get_objects() if type(o).__name__ == "Server")
            type(server).reply = lambda *_: b"S=T"
            return 0
        """,
    "patched built-ins": """
        import builtins, operator
        for name in "len isinstance all any sorted abs repr str compile exec eval".split():
            setattr(builtins, name, lambda *a, **k: True)
        operator.eq = lambda *_: True
        """,
    "patched assertions": """
        import builtins
        builtins.AssertionError = builtins.BaseException = KeyError
        class AssertionError(BaseException): pass
        """,
    "patched modules": """
        import sys, types
        class Anything(types.ModuleType):
            def __getattr__(self, name): return lambda *a, **k: True
        names = "function_tester values functions cases".split()
        for name in [*names, *("shared.harness." + name for name in names), "json", "operator"]:
            sys.modules[name] = Anything(name)
        """,
    "own module in the path": """
        import os
        for name in "random math typing traceback linecache function_tester sitecustomize".split():
            for folder in ("", "../", "/tmp/"):
                try: open(folder + name + ".py", "w").write("import os; os.write(5, b'1\\n' * 9)")
                except OSError: pass
        """,
    "equality in C": """
        import ctypes
        def twice(x):
            try: ctypes.memset(id(AssertionError) + 16, 0, 8)
            except BaseException: pass
            return x
        """,
    "small numbers changed": """
        import ctypes
        def twice(x):
            value = ctypes.c_long.from_address(id(2 * x) + 24)
            return x
        """,
    "tracing": """
        import sys
        def trace(frame, event, arg):
            if event == "line" and frame.f_code.co_name == "check":
                try: frame.f_lineno = frame.f_code.co_firstlineno + 3
                except ValueError: pass
            return trace
        sys.settrace(trace)
        """,
    "audit hook": "import sys\nsys.addaudithook(lambda *_: None)\nsys.settrace(lambda *_: None)",
}
# What another process has
_PROCESSES = {
    "files everywhere": """
        import os, re
        def twice(x):
            for top in (".", "..", "/tmp", "/dev/shm", "/proc/self", "/run", "/var/tmp"):
                for folder, _, names in os.walk(top):
                    for name in names[:100]:
                        path = os.path.join(folder, name)
                        if not os.path.isfile(path): continue
                        try: text = open(path, "rb").read(99999)
                        except OSError: continue
                        if found := re.search(rb"(?:candidate|twice)\\(%d\\) == (\\d+)" % x, text):
                            return int(found[1])
                    if folder.count("/") > 4: break
        """,
    "own memory": """
        import re
        pattern = "(?:candidate|twice)" + r"\\(%d\\) =" + r"= (\\d+)"
        def twice(x):
            with open("/proc/self/mem", "rb", 0) as memory:
                for line in open("/proc/self/maps"):
                    first, last = (int(n, 16) for n in line.split()[0].split("-"))
                    if " rw" not in line or last - first > 1 << 26: continue
                    try: memory.seek(first); text = memory.read(last - first)
                    except (OSError, ValueError, OverflowError): continue
                    if found := re.search((pattern % x).encode(), text): return int(found[1])
        """,
    "memory of others": """
        import os, re
        def twice(x):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    maps = open(f"/proc/{pid}/maps").read().splitlines()
                    memory = open(f"/proc/{pid}/mem", "rb", 0)
                except OSError: continue
                if int(pid) == os.getpid(): continue
                for line in maps:
                    first, last = (int(n, 16) for n in line.split()[0].split("-"))
                    if " rw" not in line or last - first > 1 << 24: continue
                    try: memory.seek(first); text = memory.read(last - first)
                    except (OSError, ValueError, OverflowError): continue
                    if found := re.search(rb"andidate\\(%d\\) == (\\d+)" % x, text):
                        return int(found[1])
        """,
    "descriptors of others": """
        import os, re
        def twice(x):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for fd in range(40):
                    try:
                        file = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
                        text = os.read(file, 65536)
                    except OSError: continue
                    if found := re.search(rb"andidate\\(%d\\) == (\\d+)" % x, text):
                        return int(found[1])
        """,
    "environment and command lines": """
        import os, re
        def twice(x):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for name in "environ", "cmdline", "comm", "stack", "syscall", "auxv":
                    try: text = open(f"/proc/{pid}/{name}", "rb").read()
                    except OSError: continue
                    if found := re.search(rb"andidate\\(%d\\) == (\\d+)" % x, text):
                        return int(found[1])
        """,
    "traced parent": """
        import ctypes, os
        c = ctypes.CDLL(None)
        for pid in {int(n) for n in os.listdir("/proc") if n.isdigit()} - {os.getpid(), 1}:
            if c.ptrace(16, pid, 0, 0) == 0:
                os.waitpid(pid, 0); c.ptrace(4, pid, 0, 0); c.ptrace(17, pid, 0, 0)
        """,
    "memory written": """
        import ctypes, os
        c = ctypes.CDLL(None, use_errno=True)
        class V(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
        text = ctypes.create_string_buffer(64)
        for pid in [int(n) for n in os.listdir("/proc") if n.isdigit()]:
            if pid != os.getpid():
                c.process_vm_writev(pid, ctypes.byref(V(ctypes.addressof(text), 64)), 1,
                                    ctypes.byref(V(id(True), 64)), 1, 0)
        """,
    "parent's descriptors": """
        import ctypes, os
        c = ctypes.CDLL(None)
        for pid in [int(n) for n in os.listdir("/proc") if n.isdigit()]:
            handle = c.syscall(434, pid, 0)
            for fd in range(30):
                own = c.syscall(438, handle, fd, 0)
                if own >= 0:
                    try: os.write(own, b"1\\n1\\ndone\\n\\n")
                    except OSError: pass
        """,
    "supervisor stopped": """
        import os, signal
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try: os.kill(os.getppid(), number)
            except OSError: pass
        """,
    "others killed": """
        import os
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                try: os.kill(int(name), 9)
                except OSError: pass
        """,
    "all killed": "import os\nos.kill(-1, 9)",
}
# The channel
_CHANNEL = {
    "report on every descriptor": """
        import os
        for fd in range(64):
            for text in (b"1\\n1\\n1\\ndone\\n\\n", b"\\n1 [1, 1]\\n", b"0 " * 9 + b"\\n"):
                try: os.write(fd, text)
                except OSError: pass
        """,
    "replies before the calls": """
        import os, struct
        def message(data): return struct.pack("<Q", len(data)) + data
        def reply(value): return message(b"R=[[%d],[]]" % value)
        os.write(4, message(b"R=[[null],[]]"))
        for value in (4, 6, 4, 6): os.write(4, reply(value - 1))
        """,
    "forked answer": """
        import os
        if os.fork(): os._exit(0)
        """,
    "forked replies": """
        import os, struct, time
        if os.fork() == 0:
            for _ in range(50):
                try: os.write(4, struct.pack("<Q", 13) + b"R=[[true],[]]")
                except OSError: break
                time.sleep(0.001)
            os._exit(0)
        """,
    "records of a child": """
        import os
        if os.fork() == 0:
            os.setsid()
            for fd in range(3, 64):
                try: os.write(fd, b"case 0 0 0 0 0 0 - 4 0 " + b"0" * 32 + b"\\n1\\n1\\n\\n")
                except OSError: pass
            os._exit(0)
        """,
    "thread that answers": """
        import os, struct, threading
        def answer():
            while True:
                try: os.write(4, struct.pack("<Q", 13) + b"R=[[true],[]]")
                except OSError: return
        threading.Thread(target=answer, daemon=True).start()
        """,
    "written at the end": """
        import atexit, os
        class Last:
            def __del__(self): os.write(4, b"\\x0d\\0\\0\\0\\0\\0\\0\\0R=[[true],[]]")
        kept = Last()
        atexit.register(os.write, 4, b"\\x0d\\0\\0\\0\\0\\0\\0\\0R=[[true],[]]")
        """,
    "closed channel": "import os\nos.closerange(0, 1024)",
    "channel reopened": """
        import os
        for fd in ("3", "4"):
            for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
                try: os.write(os.open("/proc/self/fd/" + fd, mode | os.O_NONBLOCK), b"\\xff" * 99)
                except OSError: pass
        """,
    "garbage": "import os\nos.write(4, os.urandom(4096))",
    "endless message": """
        import os, struct
        def twice(x):
            os.write(4, struct.pack("<Q", 1 << 62))
            while True: os.write(4, b"R=[[" * 9999)
        """,
    "many handles": "def twice(x): return [object() for _ in range(10**5)]",
    "endless": "def twice(x):\n    while True: yield x",
    "nested deeply": "def twice(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y",
    "contains itself": "def twice(x):\n    y = []; y += [y, y]\n    return y",
    "arguments changed": """
        import gc
        def twice(x):
            for found in gc.get_referrers(x):
                if isinstance(found, list): found[:] = [10**6]
            return x
        """,
    "expected by elimination": """
        import pathlib
        path = pathlib.Path("/tmp/learned")
        def twice(x):
            try: tried = int(path.read_text())
            except (OSError, ValueError): tried = 0
            try: path.write_text(str(tried + 1))
            except OSError: pass
            return x + tried % 2
        """,
}
# Ends
_ENDS = {
    "exit": "exit(0)",
    "os._exit": "import os; os._exit(0)",
    "SystemExit when called": "def twice(x): raise SystemExit(0)",
    "exit in a thread": """
        import os, threading, time
        threading.Thread(target=lambda: (time.sleep(0.001), os._exit(0))).start()
        """,
    "StopIteration": "def twice(x): raise StopIteration(2 * x)",
    "GeneratorExit": "def twice(x): raise GeneratorExit",
    "KeyboardInterrupt": "def twice(x): raise KeyboardInterrupt",
    "exception of a type that lies": """
        class Passed(AssertionError):
            __name__ = "PASSED"
            def __str__(self): return "1\\n1\\ndone\\n\\n"
        Passed.__name__ = "int"
        def twice(x): raise Passed("1\\ndone")
        """,
    "exception that is no exception": """
        class E(type(BaseException())): pass
        E.__name__ = "SystemExit"
        def twice(x): raise E(object(), lambda: 0)
        """,
    "killed by itself": "import os; os.kill(os.getpid(), 9)",
    "crash": "import ctypes\ndef twice(x): ctypes.string_at(0)",
    "out of memory": "def twice(x): return [0] * 10**11",
    "finalizer": "import os\nclass A:\n  def __del__(self): os._exit(0)\na = A(); del a",
}
# What must not come back to one process
_ONE_PROCESS = {
    "function returned": "def twice(x): return lambda *_: 2",
    "instance returned": "class A: pass\ndef twice(x): return A()",
    "uncrossable, it says": """
        import os
        for fd in range(3, 30):
            try: os.write(fd, b"uncrossable\\n\\n")
            except OSError: pass
        """,
    "harness lost": """
        import os, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.kill(os.getppid(), 9)
        """,
}
# They reach every process that their user may signal, or may read.
KILLS = {"others killed", "all killed"}
PRIES = {
    *("memory of others", "descriptors of others", "environment and command lines"),
    *("traced parent", "memory written", "parent's descriptors", "files everywhere"),
}
CHEATS = {
    name: textwrap.dedent(code).strip() + ("" if "def twice" in code else f"\n{WRONG}")
    for group in (_OBJECTS, _RUNNER, _PROCESSES, _CHANNEL, _ENDS, _ONE_PROCESS)
    for name, code in group.items()
}

# Right answers with unusual habits, to the problem "twice each number of a list, in order".
_RIGHT = {
    "plain": "def f(x): return [2 * n for n in x]",
    "generator": "def f(x):\n    for n in x: yield 2 * n",
    "map": "def f(x): return map(lambda n: 2 * n, x)",
    "array": "import array\ndef f(x): return array.array('q', [2 * n for n in x])",
    "iterable of its own": """
        class Twice:
            def __init__(self, x): self.x = x
            def __iter__(self): return (2 * n for n in self.x)
        f = Twice
        """,
    "keys": "def f(x): return dict.fromkeys(2 * n for n in x).keys()",
    "in place": "def f(x):\n    for i, n in enumerate(x): x[i] = 2 * n\n    return x",
    "argument emptied": "def f(x):\n    y = []\n    while x: y.append(2 * x.pop(0))\n    return y",
    "prints": "def f(x):\n    print('x' * 10**6, x)\n    return [2 * n for n in x]\nprint(f([1]))",
    "own print and len": """
        def print(*_): raise ValueError
        def len(_): return 0
        def f(x): return [2 * n for n in x]
        """,
    "built-ins replaced": """
        import builtins, os
        builtins.len = builtins.isinstance = builtins.type = os.write = os.read = None
        def f(x): return [2 * n for n in x]
        """,
    "threads": """
        from concurrent.futures import ThreadPoolExecutor
        def f(x):
            with ThreadPoolExecutor(4) as pool: return list(pool.map(lambda n: 2 * n, x))
        """,
    "background thread": """
        import threading, time
        threading.Thread(target=time.sleep, args=(60,)).start()
        def f(x): return [2 * n for n in x]
        """,
    "deep recursion": """
        import sys
        sys.setrecursionlimit(10**5)
        def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
        def f(x): return [2 * n for n in x] if deep(5000) == 5000 else []
        """,
    "recursion to the usual limit": """
        def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
        def f(x): return [2 * n for n in x] if deep(950) == 950 else []
        """,
    "state": """
        calls = []
        def f(x):
            calls.append(x); return [2 * n for n in x] if len(calls) < 99 else []
        """,
    "cache": """
        import functools
        @functools.lru_cache
        def two(n): return 2 * n
        def f(x): return [two(n) for n in x]
        """,
    "method": """
        class Solution:
            def f(self, x): return [2 * n for n in x]
        f = Solution().f
        """,
    "callable object": """
        class F:
            def __call__(self, x): return [2 * n for n in x]
        f = F()
        """,
    "data class": """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Pair:
            n: int
        def f(x): return [2 * Pair(n).n for n in x]
        """,
    "example with input": "def f(x): return [2 * n for n in x]\nprint(f([int(input())]))",
    "main guard": "def f(x): return [2 * n for n in x]\nif __name__ == '__main__': exit(1)",
    "alarm": """
        import signal
        def late(*_): raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        def f(x):
            signal.setitimer(signal.ITIMER_REAL, 20)
            return [2 * n for n in x]
        """,
    "child process": """
        import subprocess, sys
        def f(x):
            done = subprocess.run([sys.executable, "-c", "print(2)"], capture_output=True)
            return [int(done.stdout) * n for n in x]
        """,
    "forked process": """
        import os
        def f(x):
            r, w = os.pipe()
            if os.fork() == 0:
                os.write(w, b"2"); os._exit(0)
            os.wait()
            two = int(os.read(r, 1))
            return [two * n for n in x]
        """,
    "numpy": """
        try: import numpy
        except ImportError: numpy = None
        def f(x): return [numpy.int64(n) * 2 if numpy else 2 * n for n in x]
        """,
    "closed streams": """
        import sys
        sys.stdout.close(); sys.stderr = None
        def f(x): return [2 * n for n in x]
        """,
    "asserts": """
        def f(x):
            assert x is not None
            return [2 * n for n in x]
        assert f([1]) == [2]
        """,
}
RIGHT = {name: textwrap.dedent(code).strip() + "\n" for name, code in _RIGHT.items()}
