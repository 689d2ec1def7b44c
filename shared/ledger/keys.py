"""Names of all Redis keys."""

from dataclasses import dataclass

PREFIX = "plumbline"
RUNS = f"{PREFIX}:runs"
# Channel with the id of each run that was judged.
JUDGED = f"{PREFIX}:judged"
JUDGE_QUEUE = "judge"
# Hash: the largest version of records in the ledger, and the release that wrote it.
VERSION = f"{PREFIX}:version"
# Before the 16 hex digits of a reward session.
REWARDS = "reward/"
JUDGE_FUNCTION = "services.judge.jobs.judge_sample"


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run.

    ``meta`` is a hash; ``problems``, ``completions``, ``hashes``, ``verdicts`` and ``cases`` are
    hashes by problem or sample key; ``events`` is the stream of verdicts; ``deliveries`` counts
    redeliveries by sample key; ``canaries`` is a hash, reports by sandbox, profile and round;
    ``lock`` names the runner at work.
    """

    run: str

    @property
    def _base(self) -> str:
        if is_reward_run(self.run):
            return f"{PREFIX}:reward:{self.run.removeprefix(REWARDS)}"
        return f"{PREFIX}:run:{self.run}"

    @property
    def meta(self) -> str:
        return f"{self._base}:meta"

    @property
    def problems(self) -> str:
        return f"{self._base}:problems"

    @property
    def completions(self) -> str:
        return f"{self._base}:completions"

    @property
    def hashes(self) -> str:
        return f"{self._base}:hashes"

    @property
    def verdicts(self) -> str:
        return f"{self._base}:verdicts"

    @property
    def events(self) -> str:
        return f"{self._base}:events"

    @property
    def cases(self) -> str:
        return f"{self._base}:cases"

    @property
    def deliveries(self) -> str:
        return f"{self._base}:deliveries"

    @property
    def lock(self) -> str:
        return f"{self._base}:lock"

    @property
    def canaries(self) -> str:
        return f"{self._base}:canaries"

    @property
    def of_verdicts(self) -> tuple[str, ...]:
        """The keys that a verdict is written to, without its cases."""
        return self.hashes, self.verdicts, self.events, self.meta

    @property
    def all(self) -> tuple[str, ...]:
        """The keys that are deleted with the run, that is, all but the lock."""
        return (*self._own, self.cases)

    @property
    def _own(self) -> tuple[str, ...]:
        return (
            self.meta,
            self.problems,
            self.completions,
            self.hashes,
            self.verdicts,
            self.events,
            self.deliveries,
            self.canaries,
        )


@dataclass(frozen=True, slots=True)
class RewardKeys(RunKeys):
    """The keys of a reward session: those of a run, and further ones.

    ``uses`` is a hash, samples in flight by problem key; ``idle`` a sorted set of the problems
    without any, by the time since when; an ``answer`` is a string that expires.
    """

    @property
    def uses(self) -> str:
        return f"{self._base}:uses"

    @property
    def idle(self) -> str:
        return f"{self._base}:idle"

    def answer(self, sample: str) -> str:
        """Key of the remembered answer on a sample, by the sample's key."""
        return f"{self._base}:answer:{sample}"

    @property
    def kept(self) -> tuple[str, ...]:
        """The keys that expire with the session, unless it is in use."""
        return (*self._own, self.uses, self.idle)


def is_reward_run(run: str) -> bool:
    """Whether an id is that of a reward session."""
    return run.startswith(REWARDS)


def lease(job: str) -> str:
    """Key of the lease on ``job``; it expires if the worker that holds it dies."""
    return f"{PREFIX}:lease:{job}"


def woken(worker: str) -> str:
    """Key of the list in which an idle worker receives the job that it waits for."""
    return f"{PREFIX}:woken:{worker}"
