"""Names of all Redis keys."""

from dataclasses import dataclass

PREFIX = "plumbline"
RUNS = f"{PREFIX}:runs"
# Channel with the id of each run that was judged.
JUDGED = f"{PREFIX}:judged"
JUDGE_QUEUE = "judge"
REWARD_QUEUE = "reward"
# Hash: the largest version of records in the ledger, and the release that wrote it.
VERSION = f"{PREFIX}:version"
# Before the 16 hex digits of a reward session.
REWARDS = "reward/"


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run.

    ``meta`` is a hash; ``problems``, ``completions``, ``hashes``, ``verdicts`` and ``cases`` are
    hashes by problem or sample key; ``events`` is the stream of verdicts; ``jobs`` has the id of
    each sample's job; ``canaries`` is a hash, reports by sandbox, profile and round;
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
    def jobs(self) -> str:
        return f"{self._base}:jobs"

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
            self.jobs,
            self.canaries,
        )


@dataclass(frozen=True, slots=True)
class RewardKeys(RunKeys):
    """The keys of a reward session: those of a run, and further ones.

    ``used`` is a sorted set of the problems by the time of their last sample; an ``answer`` is a
    string that expires.
    """

    @property
    def used(self) -> str:
        return f"{self._base}:used"

    def answer(self, sample: str) -> str:
        """Key of the remembered answer on a sample, by the sample's key."""
        return f"{self._base}:answer:{sample}"

    @property
    def kept(self) -> tuple[str, ...]:
        """The keys that expire with the session, unless it is in use."""
        return (*self._own, self.used)


def is_reward_run(run: str) -> bool:
    """Whether an id is that of a reward session."""
    return run.startswith(REWARDS)
