"""`plumb view`: the page over finished runs, on this machine and without any other service."""

import asyncio
import os
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from typing import Annotated

from typer import Argument, Option

from services.cli.console import printable
from shared.redaction import redact_address

_PORT = 8070
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def view(
    folder: Annotated[
        str, Argument(help="Folder that contains the runs' folders, or any fsspec URL.")
    ] = "outputs",
    port: Annotated[
        int | None, Option(min=0, max=65535, help=f"Port of the page; {_PORT} or a free one.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    browser: Annotated[
        bool | None, Option("--browser/--no-browser", help="Open a browser; default on a desktop.")
    ] = None,
) -> None:
    """Show the finished runs below a folder in a browser, without any other service."""
    # Imported here, because other commands start without the aggregator's libraries.
    from services.aggregator.folders import FoldersStatus
    from services.aggregator.settings import PageSettings
    from services.aggregator.view import serve_folder
    from shared.service.settings import load_settings

    chosen = _usual_port(host) if port is None else port
    settings = load_settings(PageSettings).model_copy(update={"host": host, "port": chosen})
    shown = printable(redact_address(folder))
    if host not in _LOOPBACK and settings.bearer is None:
        print(
            f"warning: whoever can reach {host} can read these runs; without "
            "PLUMBLINE_AGGREGATOR_TOKEN no token is required",
            file=sys.stderr,
        )

    def listens(bound: int) -> None:
        address = f"http://{_named(host)}:{bound}/"
        # Not wrapped: scripts read it.
        print(address, flush=True)
        if hub := _hub_address(bound):
            print(f"on JupyterHub: {hub}", flush=True)
        if settings.bearer is not None:
            print("it asks for the token: add ?token=… to the address once", flush=True)
        if _has_desktop() if browser is None else browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    def searched(status: FoldersStatus) -> None:
        watched = status.folders[0]
        if watched.error is not None:
            print(f"{printable(watched.error)}; waiting for it (Ctrl-C ends it)", flush=True)
        elif not watched.runs:
            print(f"no run below {shown} yet; runs appear as they finish (Ctrl-C ends it)")
        else:
            runs = "1 run" if watched.runs == 1 else f"{watched.runs} runs"
            print(f"{runs} below {shown}; new ones appear on the page (Ctrl-C ends it)")
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve_folder(settings, folder, listens, searched))


def _usual_port(host: str) -> int:
    """The usual port if nothing listens there, else 0 for a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, _PORT))
        except OSError:
            return 0
    return _PORT


def _named(host: str) -> str:
    """The host of the address to open; a server on all addresses is on loopback, too."""
    if host in ("", "0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _hub_address(port: int) -> str | None:
    """The address on a JupyterHub with jupyter-server-proxy; a path if only that is known."""
    server = os.environ.get("JUPYTERHUB_PUBLIC_URL") or os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    return f"{server.rstrip('/')}/proxy/{port}/" if server else None


def _has_desktop() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
