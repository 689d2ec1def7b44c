"""Small programs for the ways in which answers read, write, fail or exit, with inputs."""

import textwrap


def _code(text: str) -> bytes:
    return textwrap.dedent(text).lstrip("\n").encode()


LINES = b"3\n1 2 3\nlast"
CRLF = b"3\r\n1 2 3\r\n"
BINARY = b"\xff\xfe caf\xe9\n\x00\n"


PROGRAMS: dict[str, tuple[bytes, ...]] = {
    # Reading
    "input": (_code("print(repr(input('? ')), repr(input()))"), LINES, CRLF, b"", b"a", b"a\nb"),
    "stdin.read": (
        _code("import sys; print(ascii(sys.stdin.read()))"), LINES, CRLF, b"", BINARY, b"\n"
    ),
    "stdin.buffer": (
        _code("""
        import sys
        data = sys.stdin.buffer.read()
        sys.stdout.buffer.write(data[::-1])
        """), LINES, BINARY, b"",
    ),
    "open 0": (
        _code("print(open(0).read().split()); print(*map(int, '1 2'.split()))"), LINES, CRLF
    ),
    "EOFError": (_code("input(); input(); input(); input()"), LINES, b""),
    "stdin undecodable": (_code("print(len(input()))"), BINARY),
    # Writing
    "text and buffer": (
        _code("""
        import sys
        print('a'); sys.stdout.buffer.write(b'b\\xff\\n'); print('c'); sys.stdout.flush()
        print('d')
        """),
    ),
    "not encodable": (_code("print('before'); print('\\ud800')"),),
    "stdout closed": (_code("import sys\nprint('a')\nsys.stdout.close()"),),
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
    # Ends
    "exit codes": (
        _code("import sys\nprint('a')\nsys.exit(eval(input()))"),
        b"None", b"0", b"1", b"256", b"-1", b"3", b"True", b"'text'", b"object", b"1.5",
        b"[1, 2]", b"(3, 4)", b"b''", b"2**31", b"'\\ud800'", b"SystemExit(4)",
    ),
    "os._exit": (_code("import os\nprint('lost')\nos._exit(int(input()))"), b"0", b"7", b"300"),
    "signals": (
        _code("import os, sys\nprint('x', flush=True)\nos.kill(os.getpid(), int(input()))"),
        b"9", b"15", b"11", b"1", b"13", b"25", b"24",
    ),
    # Exceptions
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
    # Threads and processes
    "daemon thread": (
        _code("""
        import threading, time
        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
        print('end')
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
    "execv": (_code("import os, sys\nprint('lost')\nos.execv('/bin/echo', ['echo', 'replaced'])"),),
    # The module
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
    "modules of the harness, imported by name": (
        _code("if 0:\n  import cases, services, shared\nimport sys\n"
              "own = 'cases', 'services', 'shared'\n"
              "print([name for name in sys.modules if name.split('.')[0] in own])"),
    ),
    "encoding cookie": (b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n1/0  # \xe9\n",),
    "BOM": (b"\xef\xbb\xbfprint('bom')\n",),
    "empty": (b"",),
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
    "environment": (_code("import os\nprint({k: v for k, v in os.environ.items() if k != '_'})"),),
}  # fmt: skip
