"""`plumb`, whose judges reach the embedded sandbox through the proxy at CHAOS_SANDBOX."""

import os

from services.cli.__main__ import main
from services.cli.embedded.supervisor import ChildProcess

_launch_environment = ChildProcess.launch_environment


def _through_proxy(child: ChildProcess, port_fd: int) -> dict[str, str]:
    environment = _launch_environment(child, port_fd)
    proxy = {"SANDBOX_URLS": os.environ["CHAOS_SANDBOX"]} if "SANDBOX_URLS" in environment else {}
    return environment | proxy


if __name__ == "__main__":
    ChildProcess.launch_environment = _through_proxy
    main()
