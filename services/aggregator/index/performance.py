"""Performance of a run over time: requests in flight, queue and work of the judges, in buckets.

All of it is computed from the times of the samples, so runs have it that finished long ago.
"""

import math
import sqlite3
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import numpy as np

from services.aggregator.index.overview import IndexedRun
from shared.analysis.bootstrap import Floats
from shared.analysis.bottleneck import RunLoad, bottleneck
from shared.statuses import FinalStatus

BUCKETS = 300
# Longest time of a request or of judging: a longer one cannot be right.
_LONGEST = 30 * 86_400.0
# Clocks of machines differ.
_SKEW = 60.0
# A time without any work that is longer lies between two sessions.
_PAUSE = 60.0
# Recent seconds of verdicts that tell the present speed.
_RECENT = 60.0
_COLUMNS = (
    "ifnull(finished_at, -1), ifnull(gen_time, -1), ifnull(output_tokens, 'nan'), "
    f"ifnull(judged_at, -1), total_judge_time, final_status = '{FinalStatus.TIMEOUT}'"
)


@dataclass(frozen=True, slots=True)
class Performance:
    """Series over time: value i is of the bucket that begins at ``start + i * width`` (Unix).

    A series that is not known is empty.

    Attributes:
        start: Begin of the first bucket; None if no time is known.
        width: Seconds of a bucket; None together with ``start``.
        in_flight: Requests to the generator in the middle of the bucket.
        tokens: Output tokens per second, of the completions that ended in the bucket.
        generated: Completions.
        waiting: Completions that were generated and not yet judged, at the end of the bucket.
        programs: Programs in the sandbox in the middle of the bucket: sandbox seconds per second.
        judged: Verdicts.
        timeouts: Verdicts that are time-outs.
        slots: Programs that the sandbox runs at a time, where that is recorded.
        sentence: The slower part of the run and what to add, with figures.
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
    slots: int | None = None
    sentence: str = bottleneck(RunLoad())
    notes: list[str] = field(default_factory=list)


def performance(connection: sqlite3.Connection, run: IndexedRun) -> Performance:
    """Compute the performance of a run from the times of its judged samples."""
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = cursor.execute(f"SELECT {_COLUMNS} FROM samples WHERE run_id = ?", (run.id,))
    # Without a list of rows, which would take half of the time.
    numbers = np.fromiter(chain.from_iterable(rows), dtype=np.float64).reshape(-1, 6)
    timed = numbers[np.isfinite(numbers[:, 3]) & (numbers[:, 3] > 0)]
    without = len(numbers) - len(timed)
    notes = [f"Of {without:,} samples no time of the verdict is known."] if without else []
    if not len(timed):
        return Performance(notes=[*notes, "No times of verdicts are known, so nothing is shown."])
    finished, gen_time, tokens, judged, judge_time, timeout = timed.T
    begun = run.meta.started_at
    if begun is not None and not 0 < begun <= float(judged.min()) + _SKEW:
        begun = None  # it cannot be right
    # Recorded completions are older than the run.
    is_finished = np.isfinite(finished) & (finished > 0)
    generated = is_finished & (finished <= judged + _SKEW)
    if begun is not None:
        generated &= finished >= begun - _SKEW
    if foreign := int(is_finished.sum() - generated.sum()):
        notes.append(f"{foreign:,} completions were not generated while the run was at work.")
    requests = _Spans.ending(finished[generated], gen_time[generated], begun)
    programs = _Spans.ending(judged, judge_time, np.where(generated, finished, -np.inf))
    axis = _Axis.over(requests, programs, begun)
    waiting = np.cumsum(axis.sums(requests.end)) - np.cumsum(axis.sums(judged[generated]))
    at_work = programs.at(axis.middles)
    load = _load(run, axis, requests, programs, at_work, waiting, tokens[generated])
    made = len(requests.end) > 0
    rates = axis.sums(requests.end, np.nan_to_num(tokens[generated])) / axis.width
    return Performance(
        start=axis.start,
        width=axis.width,
        in_flight=_rounded(requests.at(axis.middles)) if made else [],
        tokens=_rounded(rates) if load.tokens_per_second is not None else [],
        generated=_counts(axis.sums(requests.end)) if made else [],
        waiting=_counts(waiting) if made else [],
        programs=_rounded(at_work),
        judged=_counts(axis.sums(judged)),
        timeouts=_counts(axis.sums(judged[timeout > 0])),
        slots=load.slots,
        sentence=bottleneck(load),
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Spans:
    """Stretches of work, from ``start`` to ``end`` (Unix); each counts ``weight`` at a time."""

    start: Floats
    end: Floats
    weight: Floats

    @classmethod
    def ending(cls, end: Floats, seconds: Floats, earliest: Floats | float | None) -> "_Spans":
        """Work of so many seconds, none of which begins before ``earliest``.

        Cases may run side by side: then there is more work than time, and the weight is above 1.
        """
        seconds = np.where(np.isfinite(seconds) & (seconds > 0) & (seconds < _LONGEST), seconds, 0)
        start = end - seconds
        if earliest is not None:
            start = np.where(np.less(earliest, end), np.maximum(start, earliest), start)
        span = end - start
        return cls(start, end, np.divide(seconds, span, out=np.zeros_like(span), where=span > 0))

    @property
    def work(self) -> float:
        """Seconds of all spans, by their weights."""
        return float(((self.end - self.start) * self.weight).sum())

    def at(self, times: Floats) -> Floats:
        """Sum of the weights of the spans at each time."""
        begun, ended = (
            np.concatenate(([0.0], np.cumsum(self.weight[order])))[
                np.searchsorted(ends[order], times, side="right")
            ]
            for ends in (self.start, self.end)
            for order in [np.argsort(ends)]
        )
        return np.asarray(np.maximum(0.0, begun - ended))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Buckets of equal width from ``start`` (Unix) on."""

    start: float
    width: float
    buckets: int

    @classmethod
    def over(cls, requests: _Spans, programs: _Spans, begun: float | None) -> "_Axis":
        start = float(np.concatenate([requests.start, programs.start]).min())
        start = start if begun is None else max(start, begun)
        seconds = max(0.0, float(np.concatenate([requests.end, programs.end]).max()) - start)
        # Whole seconds, unless the run was short.
        width = float(max(1, math.ceil(seconds / BUCKETS))) if seconds >= 60 else 0.5
        return cls(start, width, min(BUCKETS, math.floor(seconds / width) + 1))

    @property
    def middles(self) -> Floats:
        """Unix times of the middles of the buckets."""
        return self.start + (np.arange(self.buckets, dtype=np.float64) + 0.5) * self.width

    def sums(self, times: Floats, amounts: Floats | None = None) -> Floats:
        """Number of times, or sum of amounts, in each bucket; those outside count at the ends."""
        places = np.clip(np.floor((times - self.start) / self.width), 0, self.buckets - 1)
        sums = np.bincount(places.astype(np.int64), weights=amounts, minlength=self.buckets)
        return np.asarray(sums, dtype=np.float64)


def _load(
    run: IndexedRun,
    axis: _Axis,
    requests: _Spans,
    programs: _Spans,
    at_work: Floats,
    waiting: Floats,
    tokens: Floats,
) -> RunLoad:
    last_verdict = float(programs.end.max())
    made = len(requests.end)
    last_completion = float(requests.end.max()) if made else axis.start
    generating = _active_seconds(requests)
    tail = max(0.0, last_verdict - last_completion) if made else 0.0
    running = run.state is None or not run.state.final
    most_waiting = int(max(0, waiting.max())) if made else 0
    after = axis.middles >= last_completion
    is_measured = np.isfinite(tokens).any() and generating > 0
    if running:
        left = max(0, run.completions - run.verdicts)
        recent = programs.end >= last_verdict - _RECENT
        spent = max(1.0, last_verdict - float(programs.end[recent].min()))
        tail = left / (float(recent.sum()) / spent)
        most_waiting = max(most_waiting, left)
    return RunLoad(
        seconds=_active_seconds(programs, requests),
        generated=made,
        generating_seconds=generating,
        tokens_per_second=float(np.nansum(tokens)) / generating if is_measured else None,
        in_flight=requests.work / generating if generating > 0 else 0.0,
        judged=len(programs.end),
        sandbox_seconds=programs.work,
        slots=(run.meta.sandbox.concurrency if run.meta.sandbox else None) or None,
        busiest=float(at_work.max()),
        most_waiting=most_waiting,
        tail_seconds=tail,
        tail_programs=float(at_work[after].mean()) if after.any() else float(at_work[-1]),
        running=running,
    )


def _active_seconds(*spans: _Spans) -> float:
    """Time from the first span to the last one, without pauses between sessions."""
    start = np.concatenate([span.start for span in spans])
    end = np.concatenate([span.end for span in spans])
    if not len(start):
        return 0.0
    order = np.argsort(start)
    until = np.maximum.accumulate(end[order])
    gaps = start[order][1:] - until[:-1]
    return float(until[-1] - start.min() - gaps[gaps > _PAUSE].sum())


def _rounded(values: Floats) -> list[float]:
    return cast(list[float], np.round(values, 3).tolist())


def _counts(values: Floats) -> list[int]:
    return cast(list[int], np.maximum(values, 0).astype(np.int64).tolist())
