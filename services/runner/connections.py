"""Many long-lived connections: open files enough, and peers that vanish found out."""

import resource
import socket

import aiohttp

_CONNECT_TIMEOUT = 30.0
# Redis, data, logs, and the sandbox's and the aggregator's clients beside ours.
_OTHER_FILES = 256
# After a minute of silence a peer is asked every 15 s whether it is there; after four times without
# an answer the connection is broken. An answer may take an hour, a dead machine must not.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def allow_connections(wanted: int) -> int:
    """Raise this process's limit of open files as needed; returns how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    return max(1, min(wanted, allowed - _OTHER_FILES))


def open_session(headers: dict[str, str], request_timeout: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # Our own gate is the limit; aiohttp's 100 connections would be a hidden one.
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
        timeout=aiohttp.ClientTimeout(total=request_timeout, sock_connect=_CONNECT_TIMEOUT),
        headers=headers,
    )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # they are not named everywhere
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
