"""One run's place in the ledger and in its output folder: found again, refused, or begun."""

import hashlib
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from services.runner.continuity import difference
from services.runner.versions import git_commit, versions
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger, RunState
from shared.plan import RunPlan
from shared.schemas import Problem

_LOCK_TTL = 15.0
_LOCK_WAIT = 20.0
ARTIFACTS = (*artifacts.FILES, artifacts.REPORT)


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes two commands the same run: config, data, completions' source, output folder."""

    name: str
    fingerprint: str
    output: str

    @property
    def run(self) -> str:
        place = hashlib.sha256(f"{self.fingerprint}\n{self.output}".encode()).hexdigest()
        return f"{self.name}-{place[:12]}"


def identify(config: Config, plan: RunPlan, folder: OutputFolder, source: str) -> RunIdentity:
    """``source`` names where completions come from beyond the config: a file's hash, or none."""
    text = "\n".join([config.protocol().fingerprint, plan.fingerprint(), source])
    output = folder.path if folder.local else folder.url
    return RunIdentity(config.run.name, hashlib.sha256(text.encode()).hexdigest(), output)


def check_output(folder: OutputFolder, identity: RunIdentity, *, force: bool) -> None:
    """Let a run into its folder: an empty one, its own, or with ``force`` any.

    Raises:
        OutputError: The folder holds another run's results, or cannot be read.
    """
    if force:
        return
    document = folder.read_json(artifacts.RUN)
    if document is None:
        if found := [name for name in ARTIFACTS if folder.exists(name)]:
            raise OutputError(
                f"{folder.url} holds {found[0]} but no {artifacts.RUN}: results of unknown origin; "
                "choose another --output, or --force to replace them"
            )
        return
    theirs = document.get("fingerprint") if isinstance(document, dict) else None
    if theirs != identity.fingerprint:
        raise OutputError(
            f"{folder.url} holds the results of another run (other config, data or completions); "
            "choose another --output, or --force to replace them"
        )


class Session:
    """A runner's hold on a run: only one at a time, and the clock that counts its work."""

    def __init__(self, redis: Redis, identity: RunIdentity) -> None:
        self.ledger = Ledger(redis, identity.run)
        self._identity = identity
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self._ticked = time.monotonic()

    def enter(
        self,
        config: Config,
        plan: RunPlan,
        problems: Sequence[Problem],
        folder: OutputFolder,
        *,
        force: bool,
        facts: dict[str, Any],
    ) -> None:
        """Take the run, and write it into ledger and output folder.

        ``facts`` goes into ``run.json`` as it is; what is None in it does not replace what an
        earlier session knew.

        Raises:
            ServiceError: Another runner is at it.
            OutputError: The folder cannot be written, or holds answers of another model, chat
                template or prompt.
        """
        self._take_lock()
        if force:
            self.ledger.delete()
            folder.remove((*ARTIFACTS, artifacts.QA_LOGS, artifacts.WANDB))
        self._check_continuity(facts)
        identity = self._identity
        self.ledger.open(
            {
                "name": identity.name,
                "fingerprint": identity.fingerprint,
                "output": identity.output,
                "plan": plan.model_dump(mode="json"),
                "started_at": time.time(),
                "seed": config.run.seed,
                **{name: None for name, fact in facts.items() if fact is None},
            },
            problems,
        )
        self.ledger.count("sessions")
        self.ledger.set_meta(
            config=config.model_dump(mode="json"),
            versions=versions(),
            git_commit=git_commit(),
            state=RunState.RUNNING,
            **{name: fact for name, fact in facts.items() if fact is not None},
        )
        folder.write_json(
            artifacts.RUN,
            {
                "run": identity.run,
                "state": "running",
                "complete": False,
                "fingerprint": identity.fingerprint,
                "config": config.model_dump(mode="json"),
            },
        )
        self._ticked = time.monotonic()

    def tick(self) -> None:
        """Keep the lock, and add the time since the last call to the run's time at work."""
        now = time.monotonic()
        if not self.ledger.lock(self._holder, _LOCK_TTL):
            raise ServiceError(f"another runner took over run {self._identity.run}; this one stops")
        self.ledger.count("active_seconds", now - self._ticked)
        self._ticked = now

    def leave(self) -> None:
        self.ledger.unlock(self._holder)

    def _check_continuity(self, facts: Mapping[str, Any]) -> None:
        if found := difference(self.ledger.meta(), facts):
            raise OutputError(
                f"{self._identity.output} holds answers {found}; choose another --output, "
                "or --force to start anew"
            )

    def _take_lock(self) -> None:
        # A runner that was killed leaves its lock behind until it expires.
        give_up = time.monotonic() + _LOCK_WAIT
        while not self.ledger.lock(self._holder, _LOCK_TTL):
            if time.monotonic() > give_up:
                raise ServiceError(
                    f"another runner is at work on run {self._identity.run}; wait for it or end it"
                )
            time.sleep(0.5)
