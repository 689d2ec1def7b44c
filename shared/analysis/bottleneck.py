"""Bottleneck of a run: whether it waited for generation or for judging, and what to add.

The rules are those of docs/sizing.md. Generation and judging overlap, so a run takes as long as the
slower of the two; judging was the slower one if it went on for long after the last completion.
"""

import math
from dataclasses import dataclass

# Share of a run for which judging may go on alone before it counts as the slower part.
_TAIL = 0.1
# Seconds that a tail takes in any run: the last verdict follows the last completion.
_SHORTEST_TAIL = 2.0
# No rate can be computed from a shorter time.
_LEAST_SECONDS = 1e-6
# Share of the sandbox's slots in use from which on they are what verdicts wait for.
_BUSY = 0.8
# Completions that a core of the sandbox has in flight at the judges, and those of a process.
_PLACES, _PLACES_OF_A_PROCESS = 1.25, 16
_CORES = "Add sandbox cores (docs/sizing.md)."
_PROCESSES = "Add judge processes before sandbox cores (docs/sizing.md)."


@dataclass(frozen=True, slots=True)
class RunLoad:
    """The load of a run on its two parts. Times are seconds, without pauses between sessions.

    Attributes:
        seconds: Duration of the run so far.
        generated: Completions whose time is known.
        generating_seconds: Time from the first request to the last completion; 0 if the completions
            are older than the run.
        tokens_per_second: Output tokens in that time; None if they were not counted.
        in_flight: Mean number of requests in flight in that time.
        judged: Verdicts whose time is known.
        sandbox_seconds: Sum of the seconds of their programs in the sandbox.
        slots: Programs that the sandbox runs at a time; None if that is not recorded.
        busiest: Highest number of programs at a time, a mean over a short while.
        most_waiting: Most completions that were generated and not yet judged.
        tail_seconds: Time in which judging went on after the last completion. For a run in
            progress, the time that the waiting completions take at the present speed.
        tail_programs: Mean number of programs at a time in it.
        running: Whether the run is in progress.
    """

    seconds: float = 0.0
    generated: int = 0
    generating_seconds: float = 0.0
    tokens_per_second: float | None = None
    in_flight: float = 0.0
    judged: int = 0
    sandbox_seconds: float = 0.0
    slots: int | None = None
    busiest: float = 0.0
    most_waiting: int = 0
    tail_seconds: float = 0.0
    tail_programs: float = 0.0
    running: bool = False

    @property
    def capacity(self) -> float:
        """Programs at a time: the recorded slots, else the most that were seen."""
        return float(self.slots or self.busiest)

    @property
    def busy(self) -> float | None:
        """Share of the capacity in use during the run, between 0 and 1; None without any."""
        whole = self.capacity * self.seconds
        return min(1.0, self.sandbox_seconds / whole) if whole >= _LEAST_SECONDS else None

    @property
    def completions_per_second(self) -> float:
        """The q of docs/sizing.md."""
        seconds = self.generating_seconds
        return self.generated / seconds if seconds >= _LEAST_SECONDS else 0.0

    @property
    def seconds_per_completion(self) -> float:
        """The s of docs/sizing.md: sandbox seconds of one completion."""
        return self.sandbox_seconds / self.judged if self.judged else 0.0

    @property
    def needed_cores(self) -> float:
        """Sandbox cores with which judging keeps up with generation: q · s."""
        return self.completions_per_second * self.seconds_per_completion

    @property
    def needed_processes(self) -> int:
        """Judge processes for these cores: 1.25 · c / k, rounded up."""
        return max(1, math.ceil(_PLACES * self.needed_cores / _PLACES_OF_A_PROCESS))


def bottleneck(load: RunLoad) -> str:
    """Name the slower part of a run, and say with figures what would shorten it."""
    if not load.judged or load.seconds < _LEAST_SECONDS:
        return "What the run waits for cannot be told: no times of verdicts are known."
    slots = f"the judges kept {load.sandbox_seconds / load.seconds:.2g} slots of the sandbox busy"
    busy = f"{slots} (at most {load.busiest:.2g})"
    if load.slots:
        share = f"{100 * (load.busy or 0.0):.0f} %"
        busy = f"the judges kept {share} of the sandbox's {load.slots} slots busy"
    if load.generating_seconds < _LEAST_SECONDS:
        advice = _CORES if (load.busy or 0.0) >= _BUSY else _PROCESSES
        return (
            f"The completions are older than the run, so it waited for judging alone: {busy}, "
            f"{load.seconds_per_completion:.3g} s in the sandbox per completion. {advice}"
        )
    speed = f"{load.completions_per_second:.3g} completions/s"
    needs = (
        f"To keep up with {speed} of {load.seconds_per_completion:.3g} s each, judging needs "
        f"{load.needed_cores:.2g} sandbox cores and {load.needed_processes} judge "
        f"process{'es' * (load.needed_processes > 1)}."
    )
    verb = "is" if load.running else "was"
    if load.tail_seconds <= max(_SHORTEST_TAIL, _TAIL * load.seconds):
        tokens = f"{load.tokens_per_second:,.0f} tokens/s, " if load.tokens_per_second else ""
        return (
            f"Generation {verb} the slower part: {load.in_flight:.3g} requests in flight gave "
            f"{tokens}{speed}, while {busy}. {needs} Add replicas of the model, or requests in "
            "flight if the server has room (docs/sizing.md)."
        )
    tail = f"judging went on for {_duration(load.tail_seconds)} after the last completion"
    if load.running:
        tail = f"judging the waiting answers takes another {_duration(load.tail_seconds)}"
    advice = f"{needs} {_CORES}"
    # Free slots in the tail mean that more of them would not shorten it.
    if load.tail_programs < _BUSY * load.capacity and not load.running:
        advice = (
            f"But only {load.tail_programs:.2g} of {load.capacity:.2g} slots were busy then, so "
            "more cores would not shorten it: a few answers took that long, or there are too few "
            "judge processes (docs/sizing.md)."
        )
    return (
        f"Judging {verb} the slower part: {busy} while up to {load.most_waiting:,} completions "
        f"waited, and {tail}. {advice}"
    )


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.0f} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
