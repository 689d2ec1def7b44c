"""Small programs for the ways in which answers read, write, fail or exit, with inputs."""

import textwrap


def _code(text: str) -> bytes:
    return textwrap.dedent(text).lstrip("\n").encode()


LINES = b"3\n1 2 3\nlast"
CRLF = b"3\r\n1 2 3\r\n"
BINARY = b"\xff\xfe caf\xe9\n\x00\n"

# The first Python that can run a program.
VERSIONED = {
    "exception group": (3, 11),
    "exception note": (3, 11),
    "match": (3, 10),
}

# Python 3.12.0 and 3.12.1 refuse new threads once the main one has ended.
NOT_IN = {"thread starts threads at the end": (3, 12)}

# What they say on standard error is not the same in all Pythons, nor needed.
SILENT = {"exit object's str raises", "exit code beyond C"}

# Each is of a kind that another program has too: they run in `make test-all`.
SIMILAR = {
    "stdin.readline", "stdin lines", "stdin.readlines", "stdin.buffer.readline", "open 0 lines",
    "ValueError", "codecs reader", "reconfigure", "stdout.write", "not ASCII", "much output",
    "print options", "os.write", "writer with flush alone", "own wrapper", "wrapper and more",
    "file on 1, closefd", "fdopen, used in a function", "stdout closed, then print",
    "1 closed, flushed", "stdout deleted", "stderr's flush fails", "truncated",
    "asyncio writes to a pipe", "add_reader", "select and poll", "/dev/stdin of a pipe",
    "input is a pipe that nobody reads", "/dev/stderr anew", "much through /dev/stdout", "no seek",
    "exit and quit", "exit code beyond C", "alarm", "alarm handled", "ZeroDivisionError",
    "exception group", "exception note", "own exception", "GeneratorExit",
    "error in a lambda over lines", "error in exec", "assert", "excepthook exits",
    "recursion in a method", "lru_cache recursion", "deep recursion", "generators deep",
    "__del__ without a cycle", "__del__ raises", "gc disabled", "generator's finally",
    "error and __del__", "atexit exits", "atexit leaves", "atexit after an error", "thread",
    "thread exits", "Timer", "ThreadPoolExecutor", "Pool", "Process and Queue", "fork", "os.system",
    "asyncio", "main guard", "no docstring", "import itself", "NamedTuple and Enum", "native_id",
    "no newline at the end", "match", "logging", "seeded random", "hash order", "decimal", "locale",
    "large integers", "time", "setswitchinterval", "threading broken", "__main__ deleted",
}  # fmt: skip

PROGRAMS: dict[str, tuple[bytes, ...]] = {
    # Reading
    "input": (_code("print(repr(input('? ')), repr(input()))"), LINES, CRLF, b"", b"a", b"a\nb"),
    "stdin.read": (
        _code("import sys; print(ascii(sys.stdin.read()))"), LINES, CRLF, b"", BINARY, b"\n"
    ),
    "stdin.readline": (
        _code("""
        from sys import stdin
        input = stdin.readline
        print([input() for _ in range(5)])
        """), LINES, CRLF, b"",
    ),
    "stdin lines": (
        _code("import sys\nfor line in sys.stdin: print(ascii(line), end='|')"), LINES, CRLF, b"",
    ),
    "stdin.readlines": (_code("import sys; print(sys.stdin.readlines())"), LINES, b""),
    "stdin.buffer": (
        _code("""
        import sys
        data = sys.stdin.buffer.read()
        sys.stdout.buffer.write(data[::-1])
        """), LINES, BINARY, b"",
    ),
    "stdin.buffer.readline": (
        _code("""
        import sys
        read = sys.stdin.buffer.readline
        print(read(), read(), sys.stdin.buffer.raw.name, list(iter(sys.stdin.buffer)))
        """), LINES,
    ),
    "os.read": (
        _code("""
        import os
        data = os.read(0, 10**7)
        os.write(1, b"%d %d\\n" % (len(data), sum(data)))
        """), LINES, b"1 2 3\n" * 100000, b"",
    ),
    "fstat size": (
        _code("""
        import os, io, sys
        data = io.BytesIO(os.read(0, os.fstat(0).st_size))
        print(os.fstat(0).st_size, data.readline(), data.readline())
        """), LINES, b"",
    ),
    "open 0": (
        _code("print(open(0).read().split()); print(*map(int, '1 2'.split()))"), LINES, CRLF
    ),
    "open 0 lines": (_code("print(*open(0, 'rb'), sep='')"), LINES, b""),
    "/dev/stdin": (_code("print(open('/dev/stdin').read())"), LINES, b""),
    "/dev/stdin and /dev/stdout": (
        _code("""
        import sys
        sys.stdin = open('/dev/stdin')
        sys.stdout = open('/dev/stdout', 'w')
        print(input())
        """), LINES,
    ),
    "fileinput": (_code("import fileinput\nprint([*fileinput.input()])"), LINES),
    "stdin twice": (
        _code("import sys\nprint(input())\nprint(sys.stdin.buffer.read(3), open(0).read(3))"),
        LINES,
    ),
    "seek in stdin": (
        _code("import sys\nprint(sys.stdin.read())\nsys.stdin.seek(0)\n"
              "print(sys.stdin.readline())"),
        LINES,
    ),
    "mmap": (
        _code("import mmap\nm = mmap.mmap(0, 0, prot=mmap.PROT_READ)\nprint(m.readline(), m[:4])"),
        LINES,
    ),
    "stdin never read": (_code("print(1)"), b"x" * 300000),
    "EOFError": (_code("input(); input(); input(); input()"), LINES, b""),
    "ValueError": (_code("print(int(input()))"), b"12\n", b"x\n", b" 7 \r\n"),
    "stdin undecodable": (_code("print(len(input()))"), BINARY),
    "standard streams": (
        _code("""
        import sys
        for f in (sys.stdin, sys.stdout, sys.stderr):
            print(f, f.mode, f.name, f.encoding, f.errors, f.line_buffering, f.write_through)
            print(f.newlines, f.isatty(), f.fileno(), type(f.buffer), f.buffer.raw, f.closed)
            print(f is getattr(sys, f.name.replace('<', '__').replace('>', '__')))
            print(f.buffer.raw.closefd, f.seekable())
        """),
    ),
    "codecs reader": (
        _code("import sys, codecs\nsys.stdin = codecs.getreader('latin-1')(sys.stdin.detach())\n"
              "print(ascii(sys.stdin.read()))"), BINARY,
    ),
    "reconfigure": (
        _code("""
        import sys
        sys.stdin.reconfigure(encoding='latin-1', newline=None)
        sys.stdout.reconfigure(encoding='latin-1', newline='\\r\\n')
        print(sys.stdin.read())
        """), CRLF, b"\xe9\n",
    ),
    # Writing
    "stdout.write": (_code("import sys\nfor i in range(9): sys.stdout.write(str(i) + '\\n')"),),
    "text and buffer": (
        _code("""
        import sys
        print('a'); sys.stdout.buffer.write(b'b\\xff\\n'); print('c'); sys.stdout.flush()
        print('d')
        """),
    ),
    "stderr": (
        _code("import sys\nprint('e', file=sys.stderr)\nprint('o')\nsys.stderr.write('no end')"),
    ),
    "not ASCII": (_code("print('žluťoučký 🐎'); print('\\u2028')"),),
    "not encodable": (_code("print('before'); print('\\ud800')"),),
    "much output": (_code("for i in range(200000): print(i)"),),
    "print options": (_code("print(1, 2, sep='-', end='!', flush=True); print(*[], end='')"),),
    "os.write": (_code("import os\nprint('late')\nos.write(1, b'early\\n')"),),
    "BytesIO and os.write": (
        _code("""
        import os, sys, io, atexit
        input = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline
        out = io.StringIO()
        atexit.register(lambda: os.write(1, out.getvalue().encode()))
        n = int(input())
        out.write(f"{n} {sum(map(int, input().split()))}")
        """), LINES,
    ),
    "IOWrapper": (
        _code("""
        import os, sys
        from io import BytesIO, IOBase
        BUFSIZE = 8192
        class FastIO(IOBase):
            newlines = 0
            def __init__(self, file):
                self._fd = file.fileno()
                self.buffer = BytesIO()
                self.writable = "x" in file.mode or "r" not in file.mode
                self.write = self.buffer.write if self.writable else None
            def read(self):
                while True:
                    b = os.read(self._fd, max(os.fstat(self._fd).st_size, BUFSIZE))
                    if not b:
                        break
                    ptr = self.buffer.tell()
                    self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
                self.newlines = 0
                return self.buffer.read()
            def readline(self):
                while self.newlines == 0:
                    b = os.read(self._fd, max(os.fstat(self._fd).st_size, BUFSIZE))
                    self.newlines = b.count(b"\\n") + (not b)
                    ptr = self.buffer.tell()
                    self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
                self.newlines -= 1
                return self.buffer.readline()
            def flush(self):
                if self.writable:
                    os.write(self._fd, self.buffer.getvalue())
                    self.buffer.truncate(0), self.buffer.seek(0)
        class IOWrapper(IOBase):
            def __init__(self, file):
                self.buffer = FastIO(file)
                self.flush = self.buffer.flush
                self.writable = self.buffer.writable
                self.write = lambda s: self.buffer.write(s.encode("ascii"))
                self.read = lambda: self.buffer.read().decode("ascii")
                self.readline = lambda: self.buffer.readline().decode("ascii")
        sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
        input = lambda: sys.stdin.readline().rstrip("\\r\\n")
        n = int(input())
        print(n, sum(map(int, input().split())))
        """), LINES,
    ),
    "writer without flush": (
        _code("""
        import sys
        class Out:
            def write(self, text): sys.__stdout__.write(text.upper())
        sys.stdout = Out()
        print('a')
        """),
    ),
    "writer with flush alone": (
        _code("""
        import sys
        class Out:
            parts = []
            def write(self, text): self.parts.append(text)
            def flush(self): sys.__stdout__.write(''.join(self.parts)); self.parts.clear()
        sys.stdout = Out()
        print('a')
        """),
    ),
    "stdout is a StringIO": (
        _code("""
        import sys, io
        sys.stdout = out = io.StringIO()
        print('hidden')
        sys.__stdout__.write(out.getvalue().upper())
        """),
        ),
    "stdout is never put back": (
        _code("import sys, io\nprint(1)\nsys.stdout = io.StringIO()\nprint(2)"),
    ),
    "redirect_stdout": (
        _code("""
        import io, contextlib
        with contextlib.redirect_stdout(io.StringIO()) as out:
            print('x')
        print(len(out.getvalue()))
        """),
    ),
    "own wrapper": (
        _code("import sys, io\n"
              "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-16')\nprint('x')"),
    ),
    "wrapper and more": (
        _code("import sys, io\nprint('a')\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, "
              "line_buffering=True)\nprint('x')"),
    ),
    "detached": (_code("import sys\nprint('a')\nb = sys.stdout.detach()\nb.write(b'x')"),),
    "file on 1": (_code("f = open(1, 'w')\nf.write('never closed')"),),
    "file on 1, closefd": (_code("f = open(1, 'w', closefd=False)\nprint('p')\nf.write('f')"),),
    "fdopen, used in a function": (
        _code("""
        import os
        out = os.fdopen(1, 'w')
        def main():
            out.write('x' * 5)
        main()
        """),
    ),
    "stdout closed": (_code("import sys\nprint('a')\nsys.stdout.close()"),),
    "stdout closed, then print": (_code("import sys\nprint('a')\nsys.stdout.close()\nprint('b')"),),
    "stdin closed": (_code("import sys\nsys.stdin.close()\nprint(sys.stdin.closed)"), LINES),
    "1 closed": (_code("import os\nprint('a')\nos.close(1)"),),
    "1 closed, flushed": (_code("import os, sys\nprint('a')\nsys.stdout.flush()\nos.close(1)"),),
    "all closed": (_code("import os\nprint('a')\nos.closerange(0, 100)"),),
    "stdout None": (_code("import sys\nprint(1)\nsys.stdout = None\nprint(2)"),),
    "stderr None": (_code("import sys\nsys.stderr = None\nraise ValueError"),),
    "stdout deleted": (_code("import sys\nprint(1)\ndel sys.stdout"),),
    "all deleted": (_code("import sys\ndel sys.stdout, sys.stderr, sys.stdin\n"),),
    "flush fails": (
        _code("""
        import sys
        class Out:
            def write(self, text): pass
            def flush(self):
                raise OSError(28, 'no space')
        sys.stdout = Out()
        print(1)
        """),
    ),
    "stderr's flush fails": (
        _code("""
        import sys
        class Out:
            closed = False
            def write(self, text): pass
            def flush(self): 1/0
        sys.stderr = Out()
        print(1)
        """),
    ),
    "output goes to a file": (
        _code("import os\nos.dup2(os.open('f', os.O_RDWR | os.O_CREAT), 1)\nprint('x')"),
    ),
    "truncated": (
        _code("import os, sys\nprint('abc')\nsys.stdout.flush()\nos.ftruncate(1, 1)\nprint('d')"),
    ),
    "C's stdio": (
        _code("""
        import ctypes
        libc = ctypes.CDLL(None)
        print('python')
        libc.printf(b'C %d\\n', 5)
        """),
    ),
    # Pipes
    "epoll": (
        _code("""
        import os, select
        poll = select.epoll()
        poll.register(0, select.EPOLLIN)
        poll.register(1, select.EPOLLOUT | select.EPOLLONESHOT)
        data = b""
        while True:
            events = dict(poll.poll())
            if 1 in events:
                os.write(1, b"writable\\n")
            if 0 in events:
                part = os.read(0, 4096)
                data += part
                if not part:
                    break
        print(len(data), data[:20])
        """), LINES, b"", b"x" * 3_000_000,
    ),
    "selectors": (
        _code("""
        import selectors, sys
        chosen = selectors.DefaultSelector()
        chosen.register(sys.stdin, selectors.EVENT_READ)
        lines = []
        while chosen.select():
            line = sys.stdin.buffer.raw.read(70000)
            if not line:
                break
            lines.append(line)
        print(sum(map(len, lines)))
        """), LINES, b"a" * 200_000,
    ),
    "asyncio's pipes": (
        _code("""
        import asyncio, sys
        async def main():
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            transport, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, sys.stdout)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            async for line in reader:
                writer.write(line[::-1] + b"\\n")
            await writer.drain()
        asyncio.run(main())
        """), LINES, b"", b"1 2 3\n" * 50_000,
    ),
    "asyncio writes to a pipe": (
        _code("""
        import asyncio, sys
        async def main():
            loop = asyncio.get_running_loop()
            done = asyncio.Event()
            class Protocol(asyncio.Protocol):
                def connection_lost(self, error): done.set()
            transport, protocol = await loop.connect_write_pipe(Protocol, sys.stdout)
            transport.write(b"x" * 300_000)
            transport.close()
            await done.wait()
        asyncio.run(main())
        """),
    ),
    "add_reader": (
        _code("""
        import asyncio, os, sys
        async def main():
            loop, done, parts = asyncio.get_running_loop(), asyncio.Event(), []
            def read():
                parts.append(os.read(0, 1000))
                if not parts[-1]:
                    loop.remove_reader(0)
                    done.set()
            loop.add_reader(0, read)
            await done.wait()
            print(sum(map(len, parts)))
        asyncio.run(main())
        """), LINES, b"z" * 100_000,
    ),
    "select and poll": (
        _code("""
        import select, sys
        print(select.select([0], [1, 2], [], 5))
        poll = select.poll()
        poll.register(0, select.POLLIN)
        print(poll.poll(5000), sys.stdin.read())
        """), LINES,
    ),
    "/dev/stdin of a pipe": (
        _code("""
        # epoll
        print(open('/dev/stdin').read())
        print(open('/proc/self/fd/0').read(), open(0).read())
        """), LINES, b"y" * 100_000,
    ),
    "input is a pipe that nobody reads": (_code("print('selectors')"), b"x" * 3_000_000),
    "/dev/stdout anew": (
        _code("""
        import os, sys
        print('a'); sys.stdout.flush()
        for mode in ('w', 'a', 'wb', 'ab', 'w'):
            with open('/dev/stdout', mode) as file:
                file.write(mode if 'b' not in mode else mode.encode())
            print('-', flush=True)
        for path in ('/dev/fd/1', '/proc/self/fd/1', f'/proc/{os.getpid()}/fd/1'):
            with open(path, 'w') as file:
                print(path.count('/'), file=file)
        os.write(os.open('/dev/stdout', os.O_WRONLY | os.O_TRUNC | os.O_APPEND), b'end')
        """),
    ),
    "/dev/stderr anew": (
        _code("""
        import sys
        print('a', file=sys.stderr)
        print('b', file=open('/dev/stderr', 'w'))
        print('c', file=sys.stderr)
        """),
    ),
    "a shell opens /dev/stdout": (
        _code("""
        import os, subprocess
        print('first', flush=True)
        os.system('echo one; echo two > /dev/stdout; echo three >> /dev/stdout; echo four >&1')
        os.system('cat /dev/stdin | tee /dev/stdout | wc -c; echo error > /dev/stderr')
        subprocess.run(['sh', '-c', 'echo five > /proc/self/fd/1; : > /dev/stdout'])
        subprocess.run(['dd', 'of=/dev/stdout', 'status=none'], input=b'six')
        print('last')
        """), LINES,
    ),
    "much through /dev/stdout": (
        _code("""
        with open('/dev/stdout', 'w') as file:
            for i in range(200_000):
                print(i, file=file)
        print('end')
        """),
    ),
    "output without blocking": (
        _code("""
        import os, select
        os.set_blocking(1, False)
        data = memoryview(b'0123456789' * 50_000)
        while data:
            try:
                data = data[os.write(1, data):]
            except BlockingIOError:
                select.select([], [1], [])
        """),
    ),
    "output of several processes": (
        _code("""
        import os
        for i in range(5):
            if os.fork() == 0:
                os.write(1, b'%d' % i * 1000)
                os._exit(0)
            os.wait()
        print(os.lseek(1, 0, 1) if os.isatty(1) else '')
        """),
    ),
    "no seek": (
        _code("""
        import os, sys, stat
        print(sys.stdout.seekable(), stat.S_ISFIFO(os.fstat(1).st_mode), os.fstat(1).st_size)
        print(stat.S_ISFIFO(os.fstat(2).st_mode), os.lseek(0, 0, 2) >= 0)
        os.lseek(1, 0, 0)
        """), LINES,
    ),
    "output closed": (
        _code("import os, sys\nprint(1, flush=True)\nos.close(1)\nsys.stdin.read()"), LINES,
    ),
    # Ends
    "exit codes": (
        _code("import sys\nprint('a')\nsys.exit(eval(input()))"),
        b"None", b"0", b"1", b"256", b"-1", b"3", b"True", b"'text'", b"object", b"1.5",
        b"[1, 2]", b"(3, 4)", b"b''", b"2**31", b"'\\ud800'", b"SystemExit(4)",
    ),
    "exit and quit": (_code("print(1)\neval(input())"), b"exit()", b"quit(3)", b"exit('x')"),
    "raise SystemExit": (_code("raise eval(input())"), b"SystemExit", b"SystemExit(5)",
                         b"SystemExit('a', 'b')"),
    "exit in a function, try and finally": (
        _code("""
        import sys
        def f():
            try:
                sys.exit(2)
            finally:
                print('finally')
        f()
        """),
    ),
    "exit object's str raises": (
        _code("""
        import sys
        class A:
            def __str__(self): raise ValueError
        sys.exit(A())
        """),
    ),
    "exit code beyond C": (_code("import sys\nsys.exit(2**70)"),),
    "os._exit": (_code("import os\nprint('lost')\nos._exit(int(input()))"), b"0", b"7", b"300"),
    "os.abort": (_code("import os\nprint('lost', flush=True)\nos.abort()"),),
    "signals": (
        _code("import os, sys\nprint('x', flush=True)\nos.kill(os.getpid(), int(input()))"),
        b"9", b"15", b"11", b"1", b"13", b"25", b"24",
    ),
    "SIGINT": (_code("import os\nprint('x')\nos.kill(os.getpid(), 2)\nprint('y')"),),
    "KeyboardInterrupt": (_code("print(1)\nraise KeyboardInterrupt('stop')"),),
    "segmentation fault": (_code("import ctypes\nprint(1)\nctypes.string_at(0)"),),
    "alarm": (
        _code("import signal, time\nprint(1)\nsignal.alarm(1)\ntime.sleep(9)"),
    ),
    "alarm handled": (
        _code("""
        import signal, time, sys
        def late(*_):
            print('late'); sys.exit(4)
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while True: pass
        """),
    ),
    "signal dispositions": (
        _code("import signal\nprint([(n, signal.getsignal(n)) for n in range(1, 32)])\n"
              "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"),
    ),
    # Exceptions
    "ZeroDivisionError": (_code("def f(n):\n    return 1 / n\n\nprint(f(1))\nprint(f(0))"),),
    "chained": (
        _code("""
        def f():
            try:
                {}[1]
            except KeyError as error:
                raise ValueError('second') from error
        try:
            f()
        except ValueError:
            raise TypeError('third')
        """),
    ),
    "exception group": (
        _code("raise ExceptionGroup('many', [ValueError(1), ExceptionGroup('in', [KeyError(2)])])"),
    ),
    "exception note": (_code("e = ValueError(1)\ne.add_note('a note')\nraise e"),),
    "own exception": (_code("class Mine(Exception):\n    pass\nraise Mine('x', 1)"),),
    "str of exception raises": (
        _code("class Mine(Exception):\n    def __str__(self): raise ValueError\nraise Mine"),
    ),
    "BaseException": (_code("class Mine(BaseException): pass\nraise Mine(1)"),),
    "GeneratorExit": (_code("raise GeneratorExit"),),
    "error in a lambda over lines": (_code("f = (lambda x:\n  x.y\n  .z)\nf(\n  1\n)"),),
    "SyntaxError at run time": (_code("print(1)\neval('1 +')"),),
    "error in exec": (_code("exec('def f():\\n  1/0\\nf()')"),),
    "assert": (_code("assert 1 == 2, 'unequal'"),),
    "excepthook": (
        _code("""
        import sys
        def hook(kind, error, traceback):
            print('hooked', kind, error, traceback.tb_lineno, traceback.tb_frame.f_code.co_name)
        sys.excepthook = hook
        1/0
        """),
    ),
    "excepthook exits": (
        _code("import sys\ndef hook(*_):\n    sys.exit(5)\nsys.excepthook = hook\n1/0"),
    ),
    "traceback": (
        _code("""
        import traceback, sys
        def f(): raise ValueError('x')
        try:
            f()
        except ValueError:
            traceback.print_exc(file=sys.stdout)
            print(sys.exc_info()[2].tb_lineno)
        """),
    ),
    "MemoryError": (_code("x = bytearray(10**15)"),),
    "recursion": (
        _code("""
        def f(n):
            return 0 if n == 0 else 1 + f(n - 1)
        low, high = 1, 5000
        while high - low > 1:
            middle = (low + high) // 2
            try:
                f(middle)
                low = middle
            except RecursionError:
                high = middle
        print(low)
        """),
    ),
    "recursion in a method": (
        _code("""
        class A:
            def __init__(self): self.n = 0
            def f(self):
                self.n += 1
                self.f()
        a = A()
        try:
            a.f()
        except RecursionError as error:
            print(a.n, error)
        """),
    ),
    "recursion through C": (
        _code("""
        n = 0
        class A:
            def __repr__(self):
                global n
                n += 1
                return repr([self])
        try:
            repr(A())
        except RecursionError as error:
            print(type(error))
        """),
    ),
    "uncaught recursion": (_code("def f(n):\n    return f(n + 1)\nf(0)"),),
    "lru_cache recursion": (
        _code("""
        from functools import lru_cache
        @lru_cache(None)
        def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
        print(f(int(input())) % 10**9)
        """), b"100", b"250",
    ),
    "deep recursion in a thread": (
        _code("""
        import sys, threading
        sys.setrecursionlimit(10**6)
        threading.stack_size(2**27)
        def f(n): return 0 if n == 0 else 1 + f(n - 1)
        def main(): print(f(50000))
        threading.Thread(target=main).start()
        """),
    ),
    "deep recursion": (
        _code("""
        import sys
        sys.setrecursionlimit(10**5)
        def f(n): return 0 if n == 0 else 1 + f(n - 1)
        print(f(8000))
        """),
    ),
    "generators deep": (
        _code("""
        def f(n):
            if n:
                yield from f(n - 1)
            yield n
        try:
            print(len(list(f(900))))
            print(len(list(f(2000))))
        except RecursionError as error:
            print(error)
        """),
    ),
    # Ends of objects
    "__del__ at the end": (
        _code("""
        import sys
        class A:
            def __init__(self, name): self.name = name
            def __del__(self): print('del', self.name, LIMIT, f())
        def f(): return 'f'
        LIMIT = 5
        a = A('a')
        b = A('b')
        """),
    ),
    "__del__ without a cycle": (
        _code("class A:\n    def __del__(self): print('del')\na = A()\nprint('end')"),
    ),
    "__del__ raises": (
        _code("class A:\n    def __del__(self): 1/0\na = A()\ndel a\nprint('end')"),
    ),
    "garbage at the end": (
        _code("""
        class A:
            def __init__(self, name): self.name = name; self.me = self
            def __del__(self): print('del', self.name)
        A('cycle'); A('second')
        kept = A('kept')
        print('end')
        """),
    ),
    "gc disabled": (
        _code("""
        import gc
        gc.disable()
        class A:
            def __del__(self): print('del')
        a = A(); a.me = a; del a
        b = A(); b.me = b
        print(gc.isenabled())
        """),
    ),
    "weakref.finalize": (
        _code("""
        import weakref
        class A: pass
        a = A()
        weakref.finalize(a, print, 'finalized')
        print('end')
        """),
    ),
    "generator's finally": (
        _code("""
        def g():
            try:
                yield 1
            finally:
                print('closed')
        it = g()
        next(it)
        """),
    ),
    "file never closed": (
        _code("f = open('f', 'w')\nf.write('x' * 10)\nprint(open('f').read())"),
    ),
    "ResourceWarning": (
        _code("import warnings\nwarnings.simplefilter('always')\nf = open('f', 'w')\nf = None"),
    ),
    "error and __del__": (
        _code("""
        class A:
            def __del__(self): print('del')
        def f():
            a = A()
            1/0
        f()
        """),
    ),
    "atexit": (
        _code("""
        import atexit, sys
        atexit.register(print, 'first')
        @atexit.register
        def second():
            print('second', __name__, flush=True)
            atexit.register(print, 'nested')
        print('end')
        """),
    ),
    "atexit raises": (
        _code("""
        import atexit
        def f(): raise ValueError('at exit')
        atexit.register(print, 'last')
        atexit.register(f)
        atexit.register(print, 'first')
        """),
    ),
    "atexit exits": (
        _code("import atexit, sys\natexit.register(print, 'x')\n"
              "atexit.register(lambda: sys.exit(3))"),
    ),
    "atexit leaves": (_code("import atexit, os\nprint('lost')\natexit.register(os._exit, 3)"),),
    "atexit after an error": (_code("import atexit\natexit.register(print, 'x')\n1/0"),),
    "atexit and threads": (
        _code("""
        import atexit, threading, time
        atexit.register(print, 'exit')
        def work():
            time.sleep(0.05); print('work')
        threading.Thread(target=work).start()
        print('end')
        """),
    ),
    # Threads and processes
    "thread": (
        _code("""
        import threading
        def main(): print(input(), threading.current_thread().name, threading.active_count())
        threading.Thread(target=main).start()
        """), LINES,
    ),
    "thread raises": (
        _code("""
        import threading
        def main(): raise ValueError('in a thread')
        t = threading.Thread(target=main); t.start(); t.join()
        print('end')
        """),
    ),
    "thread exits": (
        _code("import threading, sys\nthreading.Thread(target=sys.exit, args=(3,)).start()"),
    ),
    "daemon thread": (
        _code("""
        import threading, time
        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
        print('end')
        """),
    ),
    "main thread": (
        _code("""
        import threading
        t = threading.main_thread()
        print(t.name, t.is_alive(), t is threading.current_thread(), len(threading.enumerate()))
        print(t.ident == threading.get_ident(), threading.stack_size())
        """),
    ),
    "thread starts threads at the end": (
        _code("""
        import threading, time
        def one():
            time.sleep(0.02)
            t = threading.Thread(target=two); t.start()
        def two():
            time.sleep(0.02); print('two')
        threading.Thread(target=one).start()
        """),
    ),
    "_thread": (
        _code("import _thread, time\n_thread.start_new_thread(print, ('x',))\ntime.sleep(.2)"),
    ),
    "Timer": (_code("import threading\nthreading.Timer(0.02, print, ('timer',)).start()"),),
    "ThreadPoolExecutor": (
        _code("""
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(3)
        print(list(pool.map(lambda x: x * x, range(5))))
        pool.submit(print, 'late')
        """),
    ),
    "ProcessPoolExecutor": (
        _code("""
        from concurrent.futures import ProcessPoolExecutor
        def f(x): return x * x
        if __name__ == '__main__':
            with ProcessPoolExecutor(2) as pool:
                print(list(pool.map(f, range(5))))
        """),
    ),
    "Pool": (
        _code("""
        from multiprocessing import Pool
        def f(x): return x * x
        if __name__ == '__main__':
            with Pool(2) as pool:
                print(pool.map(f, range(5)))
        """),
    ),
    "Process and Queue": (
        _code("""
        import multiprocessing as mp
        def f(q, n): q.put(n); print('child', n)
        q = mp.Queue()
        ps = [mp.Process(target=f, args=(q, i)) for i in range(2)]
        for p in ps: p.start(); p.join()
        print(sorted(q.get() for _ in ps), [p.exitcode for p in ps])
        """),
    ),
    "Process not joined": (
        _code("""
        import multiprocessing as mp, time
        def f(): time.sleep(0.1); print('child')
        mp.Process(target=f).start()
        print('parent', flush=True)
        """),
    ),
    "spawn": (
        _code("""
        import multiprocessing as mp
        def f(x): print('child', x, __name__, flush=True)
        if __name__ == '__main__':
            mp.set_start_method('spawn')
            p = mp.Process(target=f, args=(3,)); p.start(); p.join()
            print('parent', p.exitcode)
        """),
    ),
    "fork": (
        _code("""
        import os
        print('twice')
        pid = os.fork()
        if pid: os.waitpid(pid, 0)
        print('parent' if pid else 'child')
        """),
    ),
    "fork and exit code": (
        _code("""
        import os, sys
        pid = os.fork()
        if pid == 0: sys.exit(7)
        print(os.waitpid(pid, 0)[1] >> 8)
        """),
    ),
    "subprocess": (
        _code("""
        import subprocess, sys
        print(subprocess.run([sys.executable, '-c', 'print(input()[::-1])'], capture_output=True,
                             text=True, input='abc').stdout)
        subprocess.run(['cat'])
        subprocess.run('echo $0; exit 3', shell=True)
        """), LINES,
    ),
    "os.system": (_code("import os\nprint(os.system('echo x; exit 3'), os.popen('pwd').read())"),),
    "execv": (_code("import os, sys\nprint('lost')\nos.execv('/bin/echo', ['echo', 'replaced'])"),),
    "runs itself": (
        _code("""
        import subprocess, sys
        if len(sys.argv) > 1: print('inner', sys.argv[1:])
        else: subprocess.run([sys.executable, __file__, 'x'])
        """),
    ),
    "asyncio": (
        _code("""
        import asyncio
        async def main():
            loop = asyncio.get_running_loop()
            await asyncio.sleep(0.01)
            print(await loop.run_in_executor(None, input))
        asyncio.run(main())
        """), LINES,
    ),
    # The module
    "main guard": (_code("def main(): print(input())\nif __name__ == '__main__': main()"), LINES),
    "globals": (_code("print(list(globals()))\nprint(list(vars()), dir() == sorted(globals()))"),),
    "module attributes": (
        _code("""
        '''A docstring.'''
        x: int = 1
        import sys
        print(__name__, __doc__, __package__, __spec__, __file__, __cached__, __annotations__)
        print(type(__loader__).__name__, getattr(__loader__, 'path', 0), __loader__.name)
        print(__builtins__, sys.modules['__main__'].__dict__ is globals(), locals() is globals())
        """),
    ),
    "no docstring": (_code("print(__doc__, '__annotations__' in globals())"),),
    "sys": (
        _code("""
        import sys
        print(sys.argv, sys.path[0], sys.flags, sys.getswitchinterval(), sys.byteorder)
        print(getattr(sys, 'orig_argv', [0])[1:], sys.executable, sys.dont_write_bytecode)
        print(sys.getfilesystemencoding(), sys.getdefaultencoding(), sys.warnoptions, sys._xoptions)
        print(sys.gettrace(), sys.getprofile(), sys.exc_info(), sys.excepthook)
        print(sys.path, [getattr(f, '__name__', type(f)) for f in sys.meta_path])
        """),
    ),
    "frame": (
        _code("""
        import inspect
        def f(): return inspect.currentframe().f_back.f_code.co_name, inspect.stack()[1].lineno
        print(f())
        """),
    ),
    "import __main__": (
        _code("import __main__\nx = 5\nprint(__main__.x, __main__)\n__main__.x = 6\nprint(x)"),
    ),
    "import itself": (
        _code("if __name__ == '__main__':\n    import solution\n    print(solution.f())\n"
              "def f(): return __name__"),
    ),
    "modules of the harness, imported by name": (
        _code("if 0:\n  import cases, services, shared\nimport sys\n"
              "own = 'cases', 'services', 'shared'\n"
              "print([name for name in sys.modules if name.split('.')[0] in own])"),
    ),
    "sys.modules": (
        _code("import sys\nprint(sys.modules[__name__], 'solution' in sys.modules)\n"
              "print([m for m in ('json', 'random', 'inspect', 'ctypes') if m in sys.modules])"),
    ),
    "pickle": (
        _code("""
        import pickle, copy
        class A:
            def __init__(self): self.x = 1
        def f(): pass
        print(pickle.loads(pickle.dumps(A())).x, pickle.dumps(f), copy.deepcopy(A()).x, A)
        """),
    ),
    "dataclass": (
        _code("""
        from __future__ import annotations
        from dataclasses import dataclass, field
        import typing
        @dataclass(order=True)
        class P:
            x: int
            y: typing.List[P] = field(default_factory=list)
        print(P(1) < P(2), P(1), typing.get_type_hints(P), P.__annotations__)
        """),
    ),
    "NamedTuple and Enum": (
        _code("""
        from typing import NamedTuple
        from collections import namedtuple
        from enum import Enum
        class T(NamedTuple):
            a: int
        class E(Enum):
            A = 1
        U = namedtuple('U', 'a b')
        print(T(1), E.A, U(1, 2), U.__module__, E.__module__)
        """),
    ),
    "native_id": (
        _code("import threading, os\nprint(threading.main_thread().native_id == os.getpid())"),
    ),
    "inspect.getsource": (
        _code("import inspect\ndef f():\n    return 1  # comment\nprint(inspect.getsource(f))"),
    ),
    "encoding cookie": (b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n1/0  # \xe9\n",),
    "BOM": (b"\xef\xbb\xbfprint('bom')\n",),
    "CRLF source": (b"print('a')\r\nx = '''1\r\n2'''\r\nprint(repr(x))\r\n1/0\r\n",),
    "no newline at the end": (b"print(1)\nif True:\n    print(2)",),
    "empty": (b"",),
    "match": (_code("match int(input()):\n  case 3: print('three')\n  case _: print('?')"), LINES),
    "SyntaxWarning": (_code("x = 1\nprint(x is 1, '\\d')"),),
    "warnings": (
        _code("""
        import warnings
        warnings.warn('mine')
        warnings.warn('old', DeprecationWarning)
        def f(): warnings.warn('caller', stacklevel=2)
        f()
        """),
    ),
    "logging": (
        _code("import logging\nlogging.warning('x')\nlogging.basicConfig()\nlogging.error('y')"),
    ),
    "getpass, pdb and help": (_code("breakpoint()\n"), b"p 1\nc\n"),
    # Surroundings
    "own folder": (
        _code("""
        import os
        print(os.listdir('.'), os.getcwd(), os.path.abspath('x'), os.path.dirname(__file__))
        open('made', 'w').write('x'); os.mkdir('folder'); open('folder/deep', 'w').close()
        open('solution.py', 'a').write('#')
        print(sorted(os.listdir('.')))
        """), b"1", b"2",
    ),
    "local module": (
        _code("open('helper.py', 'w').write('x = 5')\nimport helper\nprint(helper.x)"), b"", b"",
    ),
    "seeded random": (_code("import random\nrandom.seed(5)\nprint(random.random())"),),
    "hash order": (_code("print({'a', 'b', 'c', 'd', 'e'}, hash('x'))"),),
    "decimal": (
        _code("from decimal import *\ngetcontext().prec = 50\n"
              "print(Decimal(2).sqrt(), getcontext())"),
    ),
    "locale": (_code("import locale\nprint(locale.getlocale(), locale.setlocale(locale.LC_ALL))"),),
    "large integers": (_code("import sys\nprint(len(str(10**4000)))\nprint(10**5000)"),),
    "limits seen": (
        _code("import resource\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,\n"
              "resource.getrusage(resource.RUSAGE_SELF).ru_utime < 1)"),
    ),
    "time": (
        _code("import time\nt = time.process_time()\nprint(t < 0.5, time.perf_counter() > 0)"),
    ),
    "umask and descriptors": (
        _code("import os\nprint(os.umask(0), os.open('f', os.O_CREAT))\n"
              "print(sorted(os.listdir('/proc/self/fd')))"),
    ),
    "environment": (_code("import os\nprint({k: v for k, v in os.environ.items() if k != '_'})"),),
    "tracing": (
        _code("""
        import sys
        def trace(frame, event, arg):
            print(frame.f_code.co_name, event)
        sys.settrace(trace)
        def f(): pass
        f()
        sys.settrace(None)
        """),
    ),
    "builtins replaced": (
        _code("""
        import builtins, sys
        builtins.print = builtins.open = builtins.exec = builtins.__import__ = None
        sys.stdout.write('x')
        sys.exit('text')
        """),
    ),
    "setswitchinterval": (_code("import sys\nsys.setswitchinterval(1e-5)\nprint(1)"),),
    "modules cleared": (_code("import sys\nprint(1)\nsys.modules.clear()"),),
    "threading broken": (
        _code("import threading, sys\ndel sys.modules['threading']\nprint(1)"),
    ),
    "globals cleared": (_code("print(1)\nglobals().clear()"),),
    "__main__ replaced": (_code("import sys\nprint(1)\nsys.modules['__main__'] = None"),),
    "__main__ deleted": (_code("import sys\nprint(1)\ndel sys.modules['__main__']"),),
}  # fmt: skip
