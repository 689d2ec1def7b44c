"""Names of all Redis keys."""

PREFIX = "plumbline"
RUNS = f"{PREFIX}:runs"
# RQ's queues; the one for rewards is served first.
JUDGE_QUEUE = "judge"
REWARD_QUEUE = "reward"
# Hash: the largest version of records in the ledger, and the release that wrote it.
VERSION = f"{PREFIX}:version"
# Before the 16 hex digits of a reward session.
REWARDS = "reward/"


class RunKeys:
    """The keys of one run.

    ``meta`` is a hash; ``problems``, ``completions``, ``hashes``, ``verdicts`` and ``cases`` are
    hashes by problem or sample key; ``events`` is the stream of verdicts; ``jobs`` has the id of
    each sample's job; ``canaries`` has reports by sandbox, profile and round; ``lock`` names the
    runner at work. ``of_verdicts`` are the keys that a verdict changes, except ``cases``; ``all``
    are deleted with the run. A reward session also has ``used``, a sorted set of its problems by
    the time of their last sample, and :meth:`answer`, strings that expire.
    """

    def __init__(self, run: str) -> None:
        kind = "reward" if is_reward_run(run) else "run"
        self.base = base = f"{PREFIX}:{kind}:{run.removeprefix(REWARDS)}"
        self.run = run
        self.meta = f"{base}:meta"
        self.problems = f"{base}:problems"
        self.completions = f"{base}:completions"
        self.hashes = f"{base}:hashes"
        self.verdicts = f"{base}:verdicts"
        self.events = f"{base}:events"
        self.jobs = f"{base}:jobs"
        self.canaries = f"{base}:canaries"
        self.cases = f"{base}:cases"
        self.lock = f"{base}:lock"
        self.used = f"{base}:used"
        self.of_verdicts = self.hashes, self.verdicts, self.events, self.meta
        self.of_samples = self.completions, self.hashes, self.verdicts, self.cases, self.jobs
        of_run = self.meta, self.problems, self.events, self.canaries, self.used
        self.all = (*self.of_samples, *of_run)

    def answer(self, sample: str) -> str:
        """Key of the remembered answer on a sample, by the sample's key."""
        return f"{self.base}:answer:{sample}"


def is_reward_run(run: str) -> bool:
    """Whether an id is that of a reward session."""
    return run.startswith(REWARDS)
