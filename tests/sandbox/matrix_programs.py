"""Programs whose result must be the same on every rung of isolation and in every installation.

Each has the exit code and the output that a person would get who pipes files on a machine of their
own, except where a sandbox must refuse: then it is the refusal.
"""

from dataclasses import dataclass, field
from typing import Literal

Language = Literal["python", "bash", "cpp"]
Way = Literal["run_cases", "run_code", "harness"]
WAYS: tuple[Way, ...] = ("run_cases", "run_code", "harness")


@dataclass(frozen=True)
class Program:
    """A program with the result that it must have.

    Attributes:
        differs: Other outputs on some rungs, which docs/judging.md explains.
        signals: Whether it signals processes of others, which Linux refuses since 6.12.
        ways: How it is run; Bash has no cases.
    """

    code: str
    stdout: str
    exit_code: int = 0
    language: Language = "python"
    stdin: str = ""
    differs: dict[str, tuple[int, str]] = field(default_factory=dict)
    ways: tuple[Way, ...] = WAYS
    signals: bool = False


# The parent belongs to the harness or to the slot; whoever signals it is refused.
REFUSED_SIGNAL = "PermissionError\nstill here\n"


def _signals(target: str, number: str = "SIGTERM") -> str:
    return (
        "import os, signal\n"
        f"try: os.kill({target}, signal.{number}); print('sent')\n"
        "except OSError as error: print(type(error).__name__)\n"
        "print('still here')\n"
    )


# As for a person who pipes: tests/judge/test_harness_fidelity.py has many more.
STREAMS = """
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
# ``landlock`` has no Unix sockets with a name, on which managers rely.
NO_NAMED_SOCKET = (1, "")

PROGRAMS: dict[str, Program] = {
    # Input, output, exit codes
    "echo": Program("print(input()[::-1])", "cba\n", stdin="abc\n"),
    "encoding": Program(
        "import locale, sys\n"
        "print('añ漢🙂', sys.stdout.encoding, sys.getfilesystemencoding())\n"
        "print(locale.setlocale(locale.LC_ALL, ''), locale.getpreferredencoding(False))",
        "añ漢🙂 utf-8 utf-8\nC.UTF-8 UTF-8\n",
    ),
    "streams": Program(
        "print('a', flush=True)\nfor mode in 'wawa':\n"
        "  print(mode, file=open('/dev/stdout', mode))\n"
        "print(open('/dev/stdin').read(), file=open('/proc/self/fd/1', 'w'))",
        "a\nw\na\nw\na\ninput\n\n",
        stdin="input\n",
    ),
    "streams of bash": Program(
        "echo one; echo two > /dev/stdout; echo three >> /dev/stdout; cat /dev/stdin"
        " | tee /dev/stdout | wc -l; : > /dev/stdout; echo four > /proc/self/fd/1; echo five >&1",
        "one\ntwo\nthree\n2\nfour\nfive\n",
        language="bash",
        stdin="input\n",
        ways=("run_code",),
    ),
    "streams of C++": Program(
        STREAMS, "read input\nstream\nreopened\nshell\n", language="cpp", stdin="input\n"
    ),
    # Processes and threads
    "pool": Program(
        "import multiprocessing as mp\n"
        "def square(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    with mp.Pool(2) as pool: print(pool.map(square, range(5)))",
        "[0, 1, 4, 9, 16]\n",
    ),
    "process and queue": Program(
        "from multiprocessing import Process, Queue\n"
        "def work(queue): queue.put('from the child')\n"
        "queue = Queue()\nprocess = Process(target=work, args=(queue,))\n"
        "process.start(); print(queue.get()); process.join(); print(process.exitcode)",
        "from the child\n0\n",
    ),
    "locks between processes": Program(
        "from multiprocessing import Event, Lock, Process, Semaphore, Value\n"
        "value, lock, event, places = Value('i', 0), Lock(), Event(), Semaphore(2)\n"
        "def work():\n"
        "    event.wait()\n"
        "    for _ in range(200):\n"
        "        with places, lock: value.value += 1\n"
        "all_of = [Process(target=work) for _ in range(3)]\n"
        "for one in all_of: one.start()\n"
        "event.set()\n"
        "for one in all_of: one.join()\n"
        "print(value.value, lock.acquire(timeout=1), lock.acquire(timeout=0.01))",
        "600 True False\n",
    ),
    "shared memory": Program(
        "from multiprocessing import Process, shared_memory\n"
        "block = shared_memory.SharedMemory(create=True, size=100)\n"
        "def work(name):\n"
        "    other = shared_memory.SharedMemory(name=name); other.buf[0] = 7; other.close()\n"
        "process = Process(target=work, args=(block.name,)); process.start(); process.join()\n"
        "print(block.buf[0], len(block.buf) >= 100); block.close(); block.unlink()",
        "7 True\n",
    ),
    "spawned processes": Program(
        "import multiprocessing as mp\n"
        "def work(queue, lock):\n"
        "    with lock: queue.put(5)\n"
        "if __name__ == '__main__':\n"
        "    context = mp.get_context('spawn')\n"
        "    queue, lock = context.Queue(), context.Lock()\n"
        "    process = context.Process(target=work, args=(queue, lock)); process.start()\n"
        "    print(queue.get()); process.join(); print(process.exitcode)",
        "5\n0\n",
    ),
    "manager": Program(
        "from multiprocessing import Manager, Process\n"
        "def work(known): known['a'] = 1\n"
        "if __name__ == '__main__':\n"
        "    with Manager() as manager:\n"
        "        known = manager.dict()\n"
        "        process = Process(target=work, args=(known,)); process.start(); process.join()\n"
        "        print(dict(known))",
        "{'a': 1}\n",
        differs={"landlock": NO_NAMED_SOCKET},
    ),
    "big thread stack": Program(
        "import sys, threading\nsys.setrecursionlimit(200_000)\nthreading.stack_size(128 << 20)\n"
        "def deep(n): return n and 1 + deep(n - 1)\n"
        "def main(): print(deep(30_000))\n"
        "one = threading.Thread(target=main); one.start(); one.join()",
        "30000\n",
    ),
    "kills its parent": Program(_signals("os.getppid()"), REFUSED_SIGNAL, signals=True),
    "kills process 1": Program(_signals("1", "SIGKILL"), REFUSED_SIGNAL, signals=True),
    "kills everybody else": Program(
        "import os, subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        "try: os.kill(-1, 9)\n"
        "except OSError as error: print(type(error).__name__)\n"
        "print('still here', child.wait())",
        "still here -9\n",
        signals=True,
    ),
    "kills its group": Program(
        "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: print('caught'))\n"
        "os.kill(0, signal.SIGTERM)\nos.killpg(os.getpgid(0), signal.SIGTERM)\nprint('here')",
        "caught\ncaught\nhere\n",
    ),
    # Files
    "tempfile": Program(
        "import os, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = os.path.join(folder, 'x'); open(path, 'w').write('text')\n"
        "    print(open(path).read())\n"
        "with tempfile.TemporaryFile() as file: print(file.write(b'abc'))\n"
        "with tempfile.NamedTemporaryFile() as file: print(os.path.exists(file.name))\n"
        "print(os.access(tempfile.gettempdir(), os.W_OK))",
        "text\n3\nTrue\nTrue\n",
    ),
    "own folder": Program(
        "import os, sys\nhere = os.path.dirname(os.path.abspath(__file__))\n"
        "print(os.getcwd() == here == os.environ['HOME'] == sys.path[0])\n"
        "print(os.path.expanduser('~') == here, len(os.listdir()))",
        "True\nTrue 1\n",
        ways=("run_cases", "run_code"),
    ),
    "chmod": Program(
        "import os\nopen('a', 'w').close(); os.chmod('a', 0o600); os.utime('a', (1, 2))\n"
        "print(oct(os.stat('a').st_mode), os.stat('a').st_mtime == 2)",
        "0o100600 True\n",
        differs={"landlock": (0, "0o100644 False\n")},
    ),
    "writes elsewhere": Program(
        "for path in ('/x', '/etc/x', '/usr/x', '/var/x'):\n"
        "    try: open(path, 'w'); print('written')\n"
        "    except OSError: print('refused')",
        "refused\n" * 4,
    ),
    "device nodes": Program(
        "import os\nopen('/dev/null', 'w').write('x')\n"
        "print(len(open('/dev/zero', 'rb').read(4)), len(open('/dev/urandom', 'rb').read(8)))\n"
        "try: open('/dev/full', 'wb', 0).write(b'x')\n"
        "except OSError as error: print(error.errno)\n"
        "print(os.path.exists('/dev/tty'), open('/dev/stdin').read())",
        "4 8\n28\nTrue typed\n",
        stdin="typed",
    ),
    # Sockets
    "socket pair": Program(
        "import socket\none, two = socket.socketpair()\none.send(b'x'); print(two.recv(1))",
        "b'x'\n",
    ),
    # No program reaches a network, its own loopback included.
    "tcp socket": Program(
        "import socket\ntry: socket.socket(socket.AF_INET, socket.SOCK_STREAM); print('made')\n"
        "except PermissionError: print('refused')",
        "refused\n",
    ),
    "unix socket": Program(
        "import socket\nserver = socket.socket(socket.AF_UNIX); server.bind('s'); server.listen()\n"
        "client = socket.socket(socket.AF_UNIX); client.connect('s')\n"
        "client.send(b'x'); print(server.accept()[0].recv(1))",
        "b'x'\n",
        differs={"landlock": NO_NAMED_SOCKET},
    ),
    # Limits and the machine
    "memory limit": Program(
        "try: print(len(bytearray(3 << 30)))\nexcept MemoryError: print('too much')", "too much\n"
    ),
    "proc": Program(
        "import os\nprint(open('/proc/self/stat').read().split()[0] == str(os.getpid()))\n"
        "def read(name): return open('/proc/' + name).read()\n"
        "print('MemTotal' in read('meminfo'), len(read('cpuinfo')) > 9)\n"
        "print(os.readlink('/proc/self/cwd') == os.getcwd(), len(os.listdir('/proc/self/fd')) < 9)"
        "\nprint('VmRSS' in read('self/status'), len(read('self/maps')) > 9)",
        "True\nTrue True\nTrue True\nTrue True\n",
    ),
    "reads its parent": Program(
        "import os\n"
        "for name in ('environ', 'mem', 'maps', 'cwd', 'fd/0'):\n"
        "    path = '/proc/%d/%s' % (os.getppid(), name)\n"
        "    try:\n"
        "        os.readlink(path) if name in ('cwd', 'fd/0') else open(path, 'rb')\n"
        "        print('opened', name)\n"
        "    except OSError: print('refused')",
        "refused\n" * 5,
    ),
    "user": Program(
        "import getpass, os, pathlib\n"
        "print(getpass.getuser(), str(pathlib.Path.home()) == os.environ['HOME'])\n"
        "print(os.getuid() == os.geteuid(), os.getgid() == os.getegid())",
        "program True\nTrue True\n",
    ),
    "environment": Program(
        "import os\nfor name in ('PWD', 'PYTHONPATH', 'TMPDIR'): os.environ.pop(name, 0)\n"
        "print(*sorted(os.environ))",
        "HOME LANG MKL_NUM_THREADS OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH "
        "PYTHONDONTWRITEBYTECODE PYTHONHASHSEED USER\n",
        ways=("run_cases", "run_code"),
    ),
    # Other languages
    "bash": Program(
        "read x; for i in 1 2; do echo $x$i; done; ( exit 4 ); echo $?; ulimit -c;"
        "trap 'echo bye' EXIT; cat <<< here; echo a | tr a b; type mktemp >/dev/null && f=$(mktemp)"
        " && echo t > $f && cat $f",
        "z1\nz2\n4\n0\nhere\nb\nt\nbye\n",
        language="bash",
        stdin="z\n",
        ways=("run_code",),
    ),
    "cpp": Program(
        "#include <iostream>\n#include <thread>\n#include <cstdio>\n#include <sys/mman.h>\n"
        "#include <sys/wait.h>\n#include <unistd.h>\n#include <signal.h>\n#include <cerrno>\n"
        "int main(){ long x; std::cin >> x; long r = 0;\n"
        " std::thread t([&]{ r = x * 2; }); t.join(); std::cout << r << std::endl;\n"
        " FILE *f = std::tmpfile(); std::cout << (f != nullptr) << std::endl;\n"
        " void *m = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n"
        " if (fork() == 0) { *(int*)m = 5; _exit(0); } wait(0);\n"
        " std::cout << *(int*)m << std::endl;\n"
        " return 3; }",
        "42\n1\n5\n",
        3,
        language="cpp",
        stdin="21",
        differs={"landlock": (3, "42\n0\n5\n")},
    ),
}
