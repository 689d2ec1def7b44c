"""Start-up probe: choose the isolation by running a test program under each candidate."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from services.sandbox import programs
from services.sandbox.isolation import FileSystemView, Identity, Isolation
from services.sandbox.reaper import Reaper
from services.sandbox.runner import Runner
from services.sandbox.settings import IsolationChoice, SandboxSettings
from services.sandbox.workspace import DiskFullError, Workspace, claim
from shared.canaries import PACKAGES, SandboxEnvironment
from shared.errors import PlumblineError, ServiceError
from shared.harness.sandbox_api import RunCodeRequest, RunStatus
from shared.service.logs import configure_logging, get_logger
from shared.service.settings import load_settings

PROBE_PROGRAM = "import os; print('works', len(os.listdir('.')))"
PROBE_OUTPUT = "works 1\n"
PREFERENCE = (
    IsolationChoice.BWRAP,
    IsolationChoice.LANDLOCK,
    IsolationChoice.NONE,
)
MODULES = Path(__file__).parent / "slot" / "modules"
NEVER_AS_ROOT = (
    "without namespaces no program runs as root: start the server as another user, or set "
    "PLUMBLINE_SANDBOX_PYTHON to an interpreter that every user can execute"
)

log = get_logger(__name__)


class IsolationError(ServiceError):
    """The configured isolation does not work on this machine; the message has the reason."""

    exit_code = 1


@dataclass(frozen=True)
class ChosenIsolation:
    """The runner to use.

    ``failed``: the isolations that failed the probe (name -> reason). ``environment``: what the
    programs run on.
    """

    runner: Runner
    failed: dict[str, str]
    environment: SandboxEnvironment

    @property
    def isolation(self) -> Isolation:
        return self.runner.isolation

    def facts(self) -> dict[str, object]:
        """Return what ``/readyz`` and ``plumb doctor`` report."""
        packages = self.environment.packages
        return {
            "isolation": self.isolation.kind.value,
            "identity": self.isolation.identity.value,
            "covered": self.runner.covered,
            "missing": self.missing(),
            "tried": self.failed,
            "languages": self.runner.languages,
            "environment": self.environment.model_dump(mode="json"),
            # Packages of the lock that programs cannot import.
            "lacking": [name for name in programs.packages() if name not in packages],
        }

    def missing(self) -> list[str]:
        """Describe the protections that this isolation lacks."""
        kind, identity = self.isolation.kind, self.isolation.identity
        shared = identity is Identity.SERVER
        lacks = {
            "programs read every file that their user may read, data sets included":
                kind is IsolationChoice.NONE,
            "no network isolation": not self._covers("system calls"),
            "system calls are not filtered": not self._covers("system calls"),
            "no private /tmp": kind is IsolationChoice.LANDLOCK,
            "no /dev/shm, and no Unix sockets with a name": kind is IsolationChoice.LANDLOCK,
            "the machine's processes are visible": kind is IsolationChoice.LANDLOCK,
            "files of the same user can be truncated":
                kind is IsolationChoice.LANDLOCK and not self._covers("truncation"),
            "processes of the same user can be signalled":
                not self._covers("signals between programs"),
            "no limit of processes":
                shared or (identity is Identity.NAMESPACE and os.geteuid() == 0),
            "programs run as the server's user": shared,
        }  # fmt: skip
        return [protection for protection, lacking in lacks.items() if lacking]

    def _covers(self, protection: str) -> bool:
        """Whether the kernel gives a protection, which namespaces make needless."""
        return self.isolation.own_processes or protection in self.runner.covered


async def choose_isolation(settings: SandboxSettings, reaper: Reaper) -> ChosenIsolation:
    """Return the configured isolation if it works; with ``auto`` the first one that works.

    Raises:
        IsolationError: No allowed isolation can run a program.
    """
    modules = _publish_modules(settings.temp_root.resolve())
    environment, folders = _ask_interpreter(settings)
    readonly = (*folders, *settings.extra_readonly_paths())
    view = FileSystemView(readonly, settings.tmp_limit_bytes, modules)
    auto = settings.isolation is IsolationChoice.AUTO
    kinds = PREFERENCE if auto else (settings.isolation,)
    failed: dict[str, str] = {}
    for kind in kinds:
        for identity in _identities(kind):
            runner = Runner(settings, Isolation(kind, identity, view), reaper)
            reason = await _try(runner)
            if reason is None:
                return ChosenIsolation(runner, failed, environment)
            await runner.close()
            failed[f"{kind} ({identity})"] = reason
    tried = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    log.error("isolation unavailable", reason=tried)
    message = f"isolation {settings.isolation.value} does not work here: {tried}"
    if os.geteuid() == 0 and set(kinds) != {IsolationChoice.BWRAP}:
        message += f"; {NEVER_AS_ROOT}"
    raise IsolationError(message)


async def _report() -> str:
    settings = load_settings(SandboxSettings)
    claim(settings.temp_root)  # held to the end: a server that starts meanwhile removes nothing
    chosen = await choose_isolation(settings, Reaper())
    facts = chosen.facts()
    await chosen.runner.close()
    return json.dumps({**facts, "python": str(settings.python)})


def main() -> int:
    """Print the isolation and the languages that work here as JSON, for `plumb doctor`."""
    configure_logging("sandbox", "CRITICAL")
    try:
        print(asyncio.run(_report()))
    except PlumblineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _identities(kind: IsolationChoice) -> list[Identity]:
    root = os.geteuid() == 0
    if kind is not IsolationChoice.BWRAP:
        return [Identity.SLOT] if root else [Identity.SERVER]
    return [Identity.SLOT, Identity.NAMESPACE] if root else [Identity.NAMESPACE]


async def _try(runner: Runner) -> str | None:
    """Return the reason why the isolation does not work; None if it works."""
    kind = runner.isolation.kind
    if kind is IsolationChoice.BWRAP and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    request = RunCodeRequest(code=PROBE_PROGRAM, language="python", run_timeout=30)
    try:
        answer = await runner.run(request, slot=0)
    except DiskFullError as error:
        raise IsolationError(str(error)) from error
    result = answer.run_result
    if answer.status is RunStatus.SUCCESS and result and result.stdout == PROBE_OUTPUT:
        return None
    reason = answer.message or (result.stderr if result else None) or str(answer.status)
    log.debug("isolation probe failed", kind=kind.value, reason=reason)
    return reason.strip()


def _publish_modules(temp_root: Path) -> Path:
    """Copy the modules for programs to a folder that every user can read.

    All servers of this user with the same modules share it, and never remove it.
    """
    sources = {path.name: path.read_bytes() for path in sorted(MODULES.glob("*.py"))}
    digest = hashlib.sha256(repr(sources).encode()).hexdigest()[:12]
    folder = temp_root / f"plumbline-modules-{os.geteuid()}-{digest}"
    try:
        folder.mkdir(exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            raise IsolationError(f"{folder} is a link or belongs to another user; remove it")
        folder.chmod(0o755)
        for name, source in sources.items():
            if not (folder / name).exists():
                made = folder / f"{name}.{os.getpid()}"
                made.write_bytes(source)
                made.chmod(0o644)
                made.rename(folder / name)
    except OSError as error:
        raise IsolationError(f"cannot make {folder}: {error.strerror}") from error
    return folder


_QUESTIONS = f"""\
{PACKAGES}
import sys
found["folders"] = list(dict.fromkeys((sys.prefix, sys.base_prefix)))
print(json.dumps(found))
"""


def _ask_interpreter(settings: SandboxSettings) -> tuple[SandboxEnvironment, list[Path]]:
    """Return what the programs' interpreter is, and the folders that it needs."""
    python = settings.python
    command = [str(python), "-I", "-c", _QUESTIONS]  # a virtual environment is found by ``site``
    try:
        folder = Workspace.create(settings.temp_root)
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd=folder.path, timeout=30
            )
        finally:
            folder.remove()
        facts = json.loads(answer.stdout)
        environment = SandboxEnvironment.model_validate({"kind": "plumbline", **facts})
        return environment, [Path(path) for path in facts["folders"]]
    except DiskFullError as error:
        raise IsolationError(str(error)) from error
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        remedy = f"; install it: {programs.COMMAND}" if python == programs.interpreter() else ""
        raise IsolationError(f"the interpreter {python} does not run: {error}{remedy}") from error


if __name__ == "__main__":
    raise SystemExit(main())
