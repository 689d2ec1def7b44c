"""Allow-list of Host names, against DNS rebinding.

A page elsewhere whose name is made to resolve to this machine is of the same origin as the service
for a browser, which lets it read answers and send any request. Its requests have the page's own
name as ``Host``, so a service answers only to names that its operator configured.
"""

import ipaddress
import re
from collections.abc import Iterable

_NAME = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_HOST = re.compile(rf"(?:\[([0-9A-Fa-f:.]{{2,45}})\]|({_NAME})\.?)(?::[0-9]{{0,5}})?")


class AllowedHosts:
    """Host names that a service answers to: loopback names, IP addresses, and configured names.

    An IP address in ``Host`` is always allowed: nothing was looked up, so nothing was rebound. The
    probes of a kubelet and Prometheus' scrapes of pods come with the pod's address.

    Args:
        patterns: Further names; ``*.suffix`` allows all names below a suffix, ``*`` any name. A
            port is not part of a pattern, because every port is allowed.

    Raises:
        ValueError: A pattern is no host name.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        # ``localhost`` and the names below it are loopback by RFC 6761 and cannot be registered.
        names = ["localhost", "*.localhost", *map(_pattern, patterns)]
        self._any = "*" in names
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def admits(self, host: str) -> bool:
        """Whether a ``Host`` header names this service; an empty one names nothing, as in HTTP/1.0.

        A port, letter case and one dot at the end do not matter; user information or any other
        character that is not part of a host name is refused.
        """
        if not host or self._any:
            return True
        if (match := _HOST.fullmatch(host)) is None:
            return False
        address, name = match.groups()
        if address is not None:
            return _is_address(address, 6)
        name = name.lower()
        return _is_address(name, 4) or name in self._names or name.endswith(self._suffixes)


def _pattern(text: str) -> str:
    pattern = text.strip().lower().removesuffix(".")
    if pattern != "*" and not re.fullmatch(_NAME, pattern.removeprefix("*.")):
        raise ValueError(
            f"{text.strip()!r} is not a host name: give a name without scheme, port and path, "
            "*.suffix for all names below a suffix, or * for any name"
        )
    return pattern


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
