"""Run sessions: fingerprint and provenance, resume or refuse, lock of one runner at a time."""

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

from redis import Redis

from shared import artifacts
from shared.artifacts import OutputFolder
from shared.canaries import REJUDGE
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger
from shared.redaction import redact_address, remember_address
from shared.run_record import (
    JsonObject,
    Provenance,
    RunInput,
    RunMeta,
    RunnerReport,
    RunPlan,
    RunRecord,
    read_record,
)
from shared.schemas import Problem, sha256
from shared.versions import IMAGES, git_commit, versions_of

ARTIFACTS = (*artifacts.FILES, artifacts.CASES, artifacts.REPORT)
_PACKAGES = ("plumbline", "rq", "redis", "aiohttp", "pydantic", "pyarrow")
_SERVER_FACTS = {"model": "model", "chat_template_sha256": "chat template"}
_ADVICE = "choose another --output, or --force to replace them"
# Seconds until the lock of a killed runner expires, and to wait for another runner's.
_LOCK_TTL, _LOCK_WAIT = 5.0, 10.0
_MAX_DIFFERENCES = 5
_MAX_CHARACTERS = 200


class RunIdentity(RunInput):
    """Identity of a measurement: protocol, data, and source of the completions.

    Two commands with the same fingerprint are the same measurement, so one resumes the other.
    ``run`` is the id in the ledger. A run that is ``resumed`` keeps the id of ``run.json``, even
    if it was renamed or its folder was moved.
    """

    plan: RunPlan
    run: str
    resumed: bool = False

    def differences(self, record: RunRecord) -> Iterator[str]:
        """Describe each recorded difference between the run in ``record`` and this one."""
        if record.protocol and self.protocol:
            yield from map(str, record.protocol.diff(self.protocol))
        ours = {dataset.name: dataset.sha256 for dataset in self.plan.datasets}
        theirs = {dataset.dataset: dataset.sha256 for dataset in record.datasets}
        if theirs and theirs.keys() != ours.keys():
            yield f"data sets ({', '.join(theirs)} there, {', '.join(ours)} here)"
        for name, digest in theirs.items():
            if ours.get(name, digest) != digest:
                hashes = f"{digest[:8]} there, {ours[name][:8]} here"
                yield f"content of the data set {name} (SHA-256 {hashes})"
        if record.source != self.source:
            yield "source of the completions (a generator, or which recorded ones)"


def identify(config: Config, plan: RunPlan, folder: OutputFolder, source: str) -> RunIdentity:
    """Identify the run of a config and plan in an output folder.

    ``source`` identifies completions that the config does not: a file's hash, ``recorded``, or
    empty.
    """
    output, protocol = folder.path if folder.local else folder.url, config.protocol()
    remember_address(output)
    fingerprint = sha256(f"{protocol.fingerprint}\n{plan.fingerprint()}\n{source}")
    # Another password of the folder makes no other run.
    place = sha256(f"{fingerprint}\n{redact_address(output)}")
    return RunIdentity(
        name=config.name,
        output=output,
        config=config,
        seed=config.run.seed,
        fingerprint=fingerprint,
        protocol=protocol,
        source=source,
        plan=plan,
        run=f"{config.name}-{place[:12]}",
    )


def claim_output(folder: OutputFolder, identity: RunIdentity, *, force: bool) -> RunIdentity:
    """Check that the output folder is empty or contains this run; ``force`` accepts any folder.

    Returns the identity, with the id of the run to resume.

    Raises:
        OutputError: The folder holds another run's results, or cannot be read.
    """
    if force:
        return identity
    document = folder.read_json(artifacts.RUN)
    if document is None:
        if present := [name for name in ARTIFACTS if folder.exists(name)]:
            raise OutputError(
                f"{folder.url} holds {present[0]} but no {artifacts.RUN}: results of unknown "
                f"origin; {_ADVICE}"
            )
        return identity
    try:
        record = read_record(document, artifacts.RUN)
    except OutputError as error:
        raise OutputError(f"{folder.url} holds another run ({error}); {_ADVICE}") from None
    if record.fingerprint == identity.fingerprint:
        return identity.model_copy(update={"run": record.run, "resumed": True})
    changes = list(identity.differences(record)) or ["other samples of the same problems"]
    shown, hidden = changes[:_MAX_DIFFERENCES], len(changes) - _MAX_DIFFERENCES
    shown += [f"and {hidden} more"] if hidden > 0 else []
    rules = f". {REJUDGE}" if any(c.startswith("judge.rules ") for c in changes) else ""
    raise OutputError(
        f"{folder.url} holds the results of another run: {'; '.join(shown)}; {_ADVICE}{rules}"
    )


class Session:
    """A runner's exclusive session on a run: a lock that expires (a lease), and the active time."""

    def __init__(self, redis: Redis, identity: RunIdentity) -> None:
        self.ledger = Ledger(redis, identity.run)
        self._identity = identity
        self._holder = uuid.uuid4().hex
        self._ticked = time.monotonic()
        self._clock = threading.Lock()

    def enter(
        self,
        config: Config,
        problems: Sequence[Problem],
        folder: OutputFolder,
        *,
        force: bool,
        provenance: Provenance,
    ) -> None:
        """Acquire the lock, then create or resume the run in ledger and output folder.

        A field that is None in ``provenance`` keeps the value from an earlier session.

        Raises:
            ServiceError: Another runner holds the lock.
            OutputError: The folder cannot be written, holds answers of another model, chat
                template or prompt, or is that of a run that Redis does not know.
        """
        identity, plan = self._identity, self._identity.plan
        # A killed runner's lock stays until it expires.
        deadline = time.monotonic() + _LOCK_WAIT
        while not self.ledger.lock(self._holder, _LOCK_TTL):
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"another runner is working on run {identity.run}; wait for it or stop it"
                )
            time.sleep(0.5)
        if force:
            self.ledger.delete()
            folder.remove((*ARTIFACTS, artifacts.QA_LOGS, artifacts.WANDB))
        self._check_resumable(provenance)
        versions = {**versions_of(_PACKAGES), "platform": platform.platform()}
        if images := os.environ.get(IMAGES):
            versions["images"] = images
        fields = dict(provenance.without_secrets())
        fields |= {name: getattr(identity, name) for name in RunInput.model_fields}
        fields |= {"config": config.for_services(), "versions": versions}
        now = time.time()
        meta = RunMeta(
            **fields | {"git_commit": git_commit()}, started_at=now, runner=RunnerReport(at=now)
        )
        self.ledger.open(meta, plan, problems)
        self.tick(active=False)  # writing many problems may take longer than the lock lives
        meta = self.ledger.meta() or meta
        planned = (meta.stopped and self.ledger.plan()) or plan
        record = RunRecord.of(identity.run, meta, planned.datasets)
        folder.write_json(artifacts.RUN, record.document())
        self._ticked = time.monotonic()

    def tick(self, *, active: bool = True) -> None:
        """Renew the lock; if ``active``, add the time since the last such call to the active time.

        Raises:
            ServiceError: The lock expired, and another runner holds it.
        """
        with self._clock:  # a cancelled task's call may still run in its thread
            now = time.monotonic()
            if not self.ledger.lock(self._holder, _LOCK_TTL):
                run = self._identity.run
                raise ServiceError(f"another runner took over run {run}; this one stops")
            if active:
                self.ledger.add_active_seconds(now - self._ticked)
                self._ticked = now

    def leave(self) -> None:
        """Release the lock."""
        self.ledger.unlock(self._holder)

    def _check_resumable(self, provenance: Provenance) -> None:
        output = redact_address(self._identity.output)
        # Without an incarnation there are only counters, of a session that lost its run.
        before = self.ledger.meta() if self.ledger.incarnation() else None
        if before is None and self._identity.resumed:
            # Its record in the folder was written after that in the ledger.
            raise OutputError(
                f"{output} is the folder of run {self._identity.run}, which Redis does not know: "
                "it is another Redis, or it lost its data. Name the Redis that has the run, "
                "restore its data, or use --force to start over"
            )
        if before is None:
            return
        if conflict := next(_conflicts(before, provenance), None):
            advice = "choose another --output, or --force to start over"
            raise OutputError(f"{output} holds answers {conflict}; {advice}")
        earlier, present = (f and f.environment for f in (before.sandbox, provenance.sandbox))
        changes = earlier.deciding(present) if earlier and present else ()
        if named := [f"{name} ({there} there, {here} here)" for name, there, here in changes]:
            other = f"{output} holds verdicts of another judge: {'; '.join(named)}"
            raise OutputError(f"{other}; {_ADVICE}. {REJUDGE}")


def _conflicts(before: Provenance, now: Provenance) -> Iterator[str]:
    """Describe each model, chat template or prompt that differs from the earlier sessions'.

    Resuming would mix answers of both. A field that is unknown in either session does not count as
    a difference.
    """
    if before.model and now.model and before.model != now.model:
        yield f"of the model {before.model!r}, the server offers {now.model!r}"
    for key, name in _SERVER_FACTS.items():
        there, here = (_reported(facts.generator, key) for facts in (before, now))
        if there and here and there != here:
            there, here = there[:_MAX_CHARACTERS], here[:_MAX_CHARACTERS]
            yield f"of the {name} {there}, the generator has {here}"
    for dataset, prompt in (now.prompts or {}).items():
        if (before.prompts or {}).get(dataset, prompt) != prompt:
            yield f"to another prompt template of {dataset}"


def _reported(generator: JsonObject | None, key: str) -> str:
    """The values of ``key`` in the info of one server, or of several servers by URL."""
    info = generator or {}
    by_url = [facts for name, facts in info.items() if "://" in name and isinstance(facts, dict)]
    values = [value for facts in by_url or [info] if (value := facts.get(key))]
    texts = {v if isinstance(v, str) else json.dumps(v, sort_keys=True) for v in values}
    return " and ".join(sorted(texts))
