"""Performance of a run over time: requests in flight, queue and work of the judges, in buckets.

All of it is computed from the times of the samples, so runs have it that finished long ago.
"""

import math
import sqlite3
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import numpy as np
import numpy.typing as npt

from services.aggregator.index.overview import IndexedRun
from shared.analysis.bottleneck import Part, RunLoad, bottleneck
from shared.statuses import FinalStatus

BUCKETS = 300
# Times further than this from the middle one are of a clock that is wrong.
_FAR = 30 * 86_400.0
# Clocks of machines differ.
_SKEW = 60.0
# A time without any work that is longer lies between two sessions.
_PAUSE = 60.0
# Recent seconds of verdicts that tell the present speed.
_RECENT = 60.0
_COLUMNS = (
    "ifnull(finished_at, -1), ifnull(gen_time, -1), ifnull(output_tokens, -1), "
    f"ifnull(judged_at, -1), total_judge_time, final_status = '{FinalStatus.TIMEOUT}', "
    "nullif(worker, '')"
)

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_NOTHING = bottleneck(RunLoad())


@dataclass(frozen=True, slots=True)
class Performance:
    """Series over time: value i is of the bucket that begins at ``start + i * width`` (Unix).

    A series that is not known is empty.

    Attributes:
        start: Begin of the first bucket; None if no time is known.
        width: Seconds of a bucket; None together with ``start``.
        in_flight: Mean number of requests to the generator.
        tokens: Output tokens per second, each completion's spread over its request.
        generated: Completions.
        waiting: Completions that were generated and not yet judged, at the end of the bucket.
        programs: Mean number of programs in the sandbox: sandbox seconds per second.
        judged: Verdicts.
        timeouts: Verdicts that are time-outs.
        workers: Number of judge workers that gave a verdict; None without verdicts.
        slots: Programs that the sandbox runs at a time, where that is recorded.
        waits_for: The slower part of the run.
        sentence: What to add, with figures.
        notes: What cannot be shown, one line each.
    """

    start: float | None = None
    width: float | None = None
    in_flight: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    programs: list[float] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    timeouts: list[int] = field(default_factory=list)
    workers: list[int | None] = field(default_factory=list)
    slots: int | None = None
    waits_for: Part = _NOTHING.part
    sentence: str = _NOTHING.sentence
    notes: list[str] = field(default_factory=list)


def performance(connection: sqlite3.Connection, run: IndexedRun) -> Performance:
    """Compute the performance of a run from the times of its judged samples."""
    samples = _read(connection, run.id)
    begun, ended = _session_times(run)
    return _performance(samples, run, begun, ended)


@dataclass(frozen=True, slots=True)
class _Samples:
    """Columns of the samples; a time or a count of -1 is unknown."""

    finished: Floats
    gen_time: Floats
    tokens: Floats
    judged: Floats
    judge_time: Floats
    timeout: Flags
    worker: npt.NDArray[np.int64]


def _read(connection: sqlite3.Connection, run_id: int) -> _Samples:
    cursor = connection.cursor()
    cursor.row_factory = None
    found = cursor.execute(f"SELECT {_COLUMNS} FROM samples WHERE run_id = ?", (run_id,))
    workers: dict[str | None, int] = {None: -1}
    rows = ((*times, workers.setdefault(worker, len(workers) - 1)) for *times, worker in found)
    # Without a list of rows, which would take half of the time.
    numbers = np.fromiter(chain.from_iterable(rows), dtype=np.float64).reshape(-1, 7)
    finished, gen_time, tokens, judged, judge_time, timeout, worker_place = numbers.T
    return _Samples(
        finished, gen_time, tokens, judged, judge_time, timeout > 0, worker_place.astype(np.int64)
    )


def _session_times(run: IndexedRun) -> tuple[float | None, float | None]:
    """When the run began and, if it is over, when it ended, as recorded."""
    begun, ended = run.facts.get("started_at"), run.facts.get("finished_at")
    final = run.state is not None and run.state.final
    return _time(begun), _time(ended) if final else None


def _time(value: object) -> float | None:
    known = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if known and isinstance(value, int | float) else None


def _performance(
    samples: _Samples, run: IndexedRun, begun: float | None, ended: float | None
) -> Performance:
    judged, notes = _plausible_verdicts(samples, begun, ended)
    if not judged.any():
        return Performance(notes=[*notes, "No times of verdicts are known, so nothing is shown."])
    first_verdict, last = float(samples.judged[judged].min()), float(samples.judged[judged].max())
    if begun is None or begun > first_verdict + _SKEW:
        begun = None  # a clock that is wrong, or another machine's
    generated, more = _plausible_completions(samples, judged, begun)
    notes += more
    requests = _requests(samples, generated, begun)
    programs = _programs(samples, judged, generated)
    start = float(min([programs.start.min(), *([requests.start.min()] if requests else [])]))
    start = start if begun is None else max(start, begun)
    last = max(last, float(requests.end.max()) if requests else last)
    axis = _Axis.over(start, last)
    finished = requests.end if requests else np.empty(0)
    counts, verdicts = axis.count(finished), axis.count(programs.end)
    # Of those without a plausible time nobody knows since when they have waited.
    waiting = np.cumsum(counts) - np.cumsum(axis.count(samples.judged[judged & generated]))
    in_flight = requests.over(axis) if requests else np.zeros(axis.buckets)
    at_work = programs.over(axis)
    tokens = requests.weighted(axis, samples.tokens[generated]) if requests else None
    load = _load(run, axis, requests, programs, at_work, waiting, tokens)
    slower = bottleneck(load)
    return Performance(
        start=axis.start,
        width=axis.width,
        in_flight=_rounded(in_flight) if requests else [],
        tokens=_rounded(tokens) if tokens is not None else [],
        generated=counts.tolist() if requests else [],
        waiting=np.maximum(waiting, 0).tolist() if requests else [],
        programs=_rounded(at_work),
        judged=verdicts.tolist(),
        timeouts=axis.count(samples.judged[judged & samples.timeout]).tolist(),
        workers=_workers(axis, samples, judged),
        slots=load.slots,
        waits_for=slower.part,
        sentence=slower.sentence,
        notes=notes,
    )


def _plausible_verdicts(
    samples: _Samples, begun: float | None, ended: float | None
) -> tuple[Flags, list[str]]:
    """The samples whose verdict has a time that can be right, and notes about the others."""
    known = np.isfinite(samples.judged) & (samples.judged > 0)
    if not known.any():
        return known, []
    middle = float(np.median(samples.judged[known]))
    right = known & (np.abs(samples.judged - middle) <= _FAR)
    for limit, sign in ((begun, 1), (ended, -1)):
        # If most times are on the wrong side, it is the recorded one that is wrong.
        if limit is not None and sign * (middle - limit) >= -_SKEW:
            right &= sign * (samples.judged - limit) >= -_SKEW
    return right, [
        *_note(len(known) - int(known.sum()), "no time of the verdict is known"),
        *_note(int(known.sum() - right.sum()), "the time of the verdict cannot be right"),
    ]


def _plausible_completions(
    samples: _Samples, judged: Flags, begun: float | None
) -> tuple[Flags, list[str]]:
    """The judged samples whose completion was made in this run, at a time that can be right."""
    known = judged & np.isfinite(samples.finished) & (samples.finished > 0)
    limit = _FAR if begun is None else np.inf
    near = known & (samples.judged - samples.finished <= limit)
    near &= samples.finished - samples.judged <= _SKEW
    own = near if begun is None else near & (samples.finished >= begun - _SKEW)
    older = int(near.sum() - own.sum())
    foreign = f"{older:,} completions are older than the run, which did not generate them."
    return own, [
        *_note(int(judged.sum() - known.sum()), "no time of the completion is known"),
        *_note(int(known.sum() - near.sum()), "the time of the completion cannot be right"),
        *([foreign] if older else []),
    ]


def _note(count: int, what: str) -> list[str]:
    return [f"Of {count:,} samples {what}."] if count else []


@dataclass(frozen=True, slots=True)
class _Axis:
    """Buckets of equal width from ``start`` (Unix) on."""

    start: float
    width: float
    buckets: int

    @classmethod
    def over(cls, start: float, end: float) -> "_Axis":
        seconds = max(0.0, end - start)
        # Whole seconds, unless the run was short.
        width = float(max(1, math.ceil(seconds / BUCKETS))) if seconds >= 60 else 0.5
        return cls(start, width, min(BUCKETS, math.floor(seconds / width) + 1))

    @property
    def edges(self) -> Floats:
        """Seconds since ``start`` at the edges of the buckets."""
        return np.arange(self.buckets + 1, dtype=np.float64) * self.width

    def place(self, times: Floats) -> npt.NDArray[np.int64]:
        """Buckets of Unix times; those outside count for the first or the last one."""
        places = np.floor((times - self.start) / self.width)
        return np.clip(places, 0, self.buckets - 1).astype(np.int64)

    def count(self, times: Floats) -> npt.NDArray[np.int64]:
        return np.bincount(self.place(times), minlength=self.buckets)


@dataclass(frozen=True, slots=True)
class _Spans:
    """Stretches of work, from ``start`` to ``end`` (Unix); each counts ``weight`` at a time."""

    start: Floats
    end: Floats
    weight: Floats

    @property
    def work(self) -> float:
        """Seconds of all spans, by their weights."""
        return float(((self.end - self.start) * self.weight).sum())

    def over(self, axis: _Axis, weight: Floats | None = None) -> Floats:
        """Mean sum of the weights of the spans that overlap each bucket."""
        weight = self.weight if weight is None else weight
        at = axis.edges
        done = _integral(self.start - axis.start, weight, at)
        done -= _integral(self.end - axis.start, weight, at)
        return np.maximum(0.0, np.diff(done) / axis.width).astype(np.float64)

    def weighted(self, axis: _Axis, amounts: Floats) -> Floats | None:
        """Amount per second, each spread evenly over its span; None if no amount is known."""
        known = np.isfinite(amounts) & (amounts >= 0)
        if not known.any():
            return None
        amounts, seconds = np.where(known, amounts, 0.0), self.end - self.start
        long = seconds > 0
        rate = np.divide(amounts, seconds, out=np.zeros_like(amounts), where=long)
        at_once = np.bincount(
            axis.place(self.end[~long]), weights=amounts[~long], minlength=axis.buckets
        )
        return self.over(axis, rate) + at_once / axis.width


def _integral(times: Floats, weights: Floats, at: Floats) -> Floats:
    """Σ weight · (t - time) over the times up to t, for each t."""
    order = np.argsort(times)
    times, weights = times[order], weights[order]
    sums = np.concatenate(([0.0], np.cumsum(weights)))
    moments = np.concatenate(([0.0], np.cumsum(weights * times)))
    upto = np.searchsorted(times, at, side="right")
    return at * sums[upto] - moments[upto]


def _requests(samples: _Samples, generated: Flags, begun: float | None) -> _Spans | None:
    """Requests to the generator; None if none of the run is known."""
    if not generated.any():
        return None
    end, seconds = samples.finished[generated], samples.gen_time[generated]
    right = np.isfinite(seconds) & (seconds > 0) & (seconds < _FAR)
    start = end - np.where(right, seconds, 0.0)
    # A recording knows how long its request took elsewhere.
    start = start if begun is None else np.minimum(end, np.maximum(start, begun))
    return _Spans(start, end, np.ones_like(end))


def _programs(samples: _Samples, judged: Flags, generated: Flags) -> _Spans:
    """Work in the sandbox, which ends with the verdict and begins after the completion.

    Cases may run side by side: then there is more work than time, and the weight is above 1.
    """
    end, seconds = samples.judged[judged], samples.judge_time[judged]
    seconds = np.where(np.isfinite(seconds) & (seconds > 0) & (seconds < _FAR), seconds, 0.0)
    ready = np.where(generated, samples.finished, -np.inf)[judged]
    start = np.where(ready < end, np.maximum(end - seconds, ready), end - seconds)
    span = end - start
    weight = np.divide(seconds, span, out=np.zeros_like(span), where=span > 0)
    return _Spans(start, end, weight)


def _workers(axis: _Axis, samples: _Samples, judged: Flags) -> list[int | None]:
    named = judged & (samples.worker >= 0)
    if not named.any():
        return []
    # Each worker counts once in a bucket.
    most = int(samples.worker.max()) + 1
    pairs = np.unique(axis.place(samples.judged[named]) * most + samples.worker[named])
    counts: list[int] = np.bincount(pairs // most, minlength=axis.buckets).tolist()
    return [count or None for count in counts]


def _load(
    run: IndexedRun,
    axis: _Axis,
    requests: _Spans | None,
    programs: _Spans,
    at_work: Floats,
    waiting: npt.NDArray[np.int64],
    tokens: Floats | None,
) -> RunLoad:
    last_verdict = float(programs.end.max())
    last_completion = float(requests.end.max()) if requests else axis.start
    generating = _active_seconds(requests) if requests else 0.0
    tail = max(0.0, last_verdict - last_completion) if requests else 0.0
    running = run.state is None or not run.state.final
    most_waiting = int(max(0, waiting.max())) if requests else 0
    after = axis.start + axis.edges[:-1] >= last_completion
    tail_programs = float(at_work[after].mean()) if after.any() else float(at_work[-1])
    if running:
        left = max(0, run.completions - run.verdicts)
        recent = programs.end >= last_verdict - _RECENT
        spent = max(1.0, last_verdict - float(programs.end[recent].min()))
        tail = left / (float(recent.sum()) / spent)
        most_waiting = max(most_waiting, left)
    return RunLoad(
        seconds=_active_seconds(programs, *([requests] if requests else [])),
        generated=len(requests.end) if requests else 0,
        generating_seconds=generating,
        tokens_per_second=_per_second(tokens, axis, generating),
        in_flight=requests.work / generating if requests and generating > 0 else 0.0,
        judged=len(programs.end),
        sandbox_seconds=programs.work,
        slots=_slots(run),
        busiest=float(at_work.max()),
        most_waiting=most_waiting,
        tail_seconds=tail,
        tail_programs=tail_programs,
        running=running,
    )


def _per_second(tokens: Floats | None, axis: _Axis, seconds: float) -> float | None:
    if tokens is None or seconds <= 0:
        return None
    return float(tokens.sum()) * axis.width / seconds


def _active_seconds(*spans: _Spans) -> float:
    """Time from the first span to the last one, without pauses between sessions."""
    start = np.concatenate([one.start for one in spans])
    end = np.concatenate([one.end for one in spans])
    order = np.argsort(start)
    until = np.maximum.accumulate(end[order])
    gaps = start[order][1:] - until[:-1]
    return float(until[-1] - start.min() - gaps[gaps > _PAUSE].sum())


def _slots(run: IndexedRun) -> int | None:
    """Programs that the embedded sandbox runs at a time; None for another one."""
    sandbox = run.facts.get("sandbox")
    found = sandbox.get("concurrency") if isinstance(sandbox, dict) else None
    return found if isinstance(found, int) and found > 0 else None


def _rounded(values: Floats) -> list[float]:
    return cast(list[float], np.round(values, 3).tolist())
