"""The environment of a process: proxies that spare the stack, output in any character set, and the
death of its parent.

The proxies of the environment (``http_proxy`` …) are for what is outside: a model server, the hub,
object storage, Weights & Biases. Loopback and the services of a stack are reached directly.
"""

import atexit
import ctypes
import gc
import ipaddress
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import Request

PROXY_VARIABLES = tuple(
    case(name)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for case in (str.lower, str.upper)
)
_PR_SET_PDEATHSIG = 1
# New objects until the garbage collector looks at them: with 700, as by default, it takes a tenth
# of the time in which modules are imported.
_YOUNG_OBJECTS = 50_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Names that only a cluster, a host of containers or this machine resolves.
_INSIDE = (".localhost", ".internal", ".svc", ".cluster.local")


def adapt_process() -> None:
    """Adapt this process, before it connects or prints; its children inherit the proxies' rule.

    A character that the terminal cannot show is replaced.
    """
    gc.set_threshold(_YOUNG_OBJECTS)
    atexit.register(gc.freeze)  # at its end Python would look through all objects once more
    spare_from_proxies(_LOOPBACK)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def die_with_parent(sign: signal.Signals, parent: int | None = None) -> Callable[[], None]:
    """A ``preexec_fn`` that makes the kernel send ``sign`` to the child when its parent dies.

    The parent is the thread that starts the child, in this process or that of ``parent``.
    """
    parent = parent or os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sign)
        if os.getppid() != parent:
            os.kill(os.getpid(), sign)

    return set_death_signal


def uses_proxies(urls: Iterable[str]) -> bool:
    """Whether a client of these servers needs the environment's proxies (aiohttp's ``trust_env``).

    Servers of the stack among them are exempted.
    """
    hosts = {host for url in urls if (host := urlsplit(url).hostname)}
    inside = set(filter(_is_inside, hosts))
    spare_from_proxies(sorted(inside))
    return hosts != inside and _has_proxies()


def open_directly(request: "str | Request", timeout: float) -> "HTTPResponse":
    """``urlopen`` for a service of the stack: without proxies."""
    # Imported here because most commands open nothing.
    from urllib.request import ProxyHandler, build_opener

    response = build_opener(ProxyHandler({})).open(request, timeout=timeout)
    return cast("HTTPResponse", response)


def spare_from_proxies(hosts: Iterable[str]) -> None:
    """Add hosts to ``no_proxy``, which HTTP clients of all kinds follow."""
    if not _has_proxies():
        return
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name for part in excepted.split(",") if (name := part.strip())]
    if "*" not in names:
        joined = ",".join(dict.fromkeys([*names, *hosts]))
        os.environ.update(no_proxy=joined, NO_PROXY=joined)


def _has_proxies() -> bool:
    return any(os.environ.get(name) for name in PROXY_VARIABLES)


def _is_inside(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return "." not in host or host.endswith(_INSIDE)
