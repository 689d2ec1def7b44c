"""A release as a folder of its sources, and its processes."""

import json
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from shared.run_record import VERSION
from tests.conftest import RedisServer
from tests.e2e.plumb import REPOSITORY, environment, read_jsonl

DEMO = REPOSITORY / "demo"
_COMMAND_SECONDS = 60.0
_READY_SECONDS = 60.0
_A_KEY = "    max_concurrency: Operation[int] = Field(default=64, ge=1)\n"


class Ended(Exception):
    """A process that should have gone on ended, or was not ready; the text is its last line.

    ``code`` is its exit code; None if it still ran.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Release:
    """A release: its processes run in ``root``, which Python finds before what is installed."""

    name: str
    root: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", *arguments]

    def plumb(
        self, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run `plumb` to its end."""
        return self.run("services.cli", arguments, settings)

    def run(
        self, module: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a module to its end; the exit code is 124 if it has none in time."""
        command = self.command(module, *arguments)
        try:
            return subprocess.run(
                command,
                cwd=self.root,
                env=environment() | dict(settings or {}),
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired as late:
            said = b"".join(part for part in (late.stdout, late.stderr) if isinstance(part, bytes))
            return subprocess.CompletedProcess(command, 124, "", said.decode() or "hangs")

    def killed_plumb(self, arguments: Sequence[str], when: Callable[[], bool]) -> None:
        """Start `plumb`, and kill it as soon as ``when`` is true; its children end with it."""
        process = subprocess.Popen(
            self.command("services.cli", *arguments),
            cwd=self.root,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ends = time.monotonic() + _COMMAND_SECONDS
            while process.poll() is None and not when():
                if time.monotonic() > ends:
                    raise Ended("the run made no progress")
                time.sleep(0.05)
            if process.poll() is not None:
                raise Ended(f"the run ended before it was killed ({process.returncode})")
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def service(self, module: str, folder: Path, **settings: str) -> Iterator[str]:
        """Start a service; yields its base URL when it is ready.

        Raises:
            Ended: It ended, or is not ready in time; with the last line of its log.
        """
        folder.mkdir(parents=True, exist_ok=True)
        log, port_file = folder / "log", folder / "port"
        address = {"HOST": "127.0.0.1", "PORT": "0", "PLUMBLINE_PORT_FILE": str(port_file)}
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command(f"services.{module}"),
                cwd=self.root,
                env=environment() | address | settings,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            ends = time.monotonic() + _READY_SECONDS
            while not (port_file.exists() and _ready(port_file)):
                if process.poll() is not None or time.monotonic() > ends:
                    raise Ended(last_line(log.read_text()), process.poll())
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port_file.read_text().strip()}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def checked_out(commit: str, folder: Path) -> Release:
    """The sources of a commit in ``folder``; nothing of the repository changes.

    Raises:
        subprocess.CalledProcessError: There is no such commit.
    """
    packed = subprocess.run(
        ["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Release(commit[:10], folder)


def present() -> Release:
    return Release("present", REPOSITORY)


def next_release(folder: Path) -> Release:
    """The committed sources with the next version of the ledger, and a key of config more."""
    release = checked_out("HEAD", folder)
    record, config = folder / "shared/run_record.py", folder / "shared/config.py"
    for file, old, new in (
        (record, f"VERSION = {VERSION}", f"VERSION = {VERSION + 1}"),
        (record, f"Literal[{VERSION}] = {VERSION}", f"Literal[{VERSION + 1}] = {VERSION + 1}"),
        (config, _A_KEY, f"    invented_later: Operation[int] = 1\n{_A_KEY}"),
    ):
        text = file.read_text()
        assert text.count(old) == 1, f"{file} has changed: find another place for {old!r}"
        file.write_text(text.replace(old, new))
    return Release("next", release.root)


@contextmanager
def external_stack(
    folder: Path,
    releases: Mapping[str, Sequence[Release]],
    redis: RedisServer,
    sandbox: str,
    **more: Mapping[str, str],
) -> Iterator[dict[str, str]]:
    """Start services beside each other; yields settings for `plumb`.

    Args:
        folder: For logs and the index.
        releases: By service, the releases that it runs in.
        redis: The ledger.
        sandbox: Base URL of a sandbox.
        **more: By service, further settings.
    """
    common = {"REDIS_URL": redis.url, "SANDBOX_URLS": sandbox}
    index = {"PLUMBLINE_INDEX_DIR": str(folder / "index")}
    recorded = {
        "PLUMBLINE_GENERATOR_BACKEND": "replay",
        "PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS": str(DEMO / "completions.jsonl"),
    }
    settings = {"judge": common, "aggregator": common | index, "generator": recorded}
    with ExitStack() as stack:
        urls = {}
        for module, given in releases.items():
            for number, release in enumerate(given):
                place = folder / f"{module}-{number}-{release.name}"
                service = release.service(module, place, **settings[module], **more.get(module, {}))
                urls[module] = stack.enter_context(service)
        yield common | {"GENERATOR_URLS": urls.get("generator", "")}


def statuses(output: Path) -> dict[str, str]:
    """Final status of each sample of a finished run."""
    return {
        f"{one['dataset']}/{one['problem_id']}/{one['sample_index']}": one["final_status"]
        for one in read_jsonl(output / "verdicts.jsonl")
    }


def record(output: Path) -> dict[str, object]:
    return dict(json.loads((output / "run.json").read_text()))


def last_line(text: str) -> str:
    """The last line that says something; a JSON line as its event and reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in text:
        return f"TRACEBACK: {lines[-1][:200]}"
    if not lines:
        return "nothing was said"
    try:
        found = json.loads(lines[-1])
        return f"{found.get('event')} {found.get('reason', '')}".strip()
    except (ValueError, AttributeError):
        return lines[-1]


def _ready(port_file: Path) -> bool:
    try:
        url = f"http://127.0.0.1:{port_file.read_text().strip()}/readyz"
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
