"""Data of a comparison's page as JSON, which replaces the API for the scripts of the page.

``{"document", "notes", "pairs", "samples", "prompts"}``: the first is the answer of the API.
``pairs`` has by the second run's letter and data set ``problems`` (ids), ``slices`` (places of
problems by dimension and bucket) and ``rows``: place of the problem, index, and both verdicts.
``samples`` has texts by run's letter and sample, ``prompts`` what was asked by problem.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, zip_longest

import numpy as np

from services.aggregator.report.contents import shown_prompt, shown_texts
from services.aggregator.report.samples import Bounds
from shared.analysis.compare import Comparison, PairedSamples, comparison_document
from shared.analysis.contests import Ints
from shared.analysis.runs import ComparedRun, SampleVerdict
from shared.outlines import read_outlines
from shared.schemas import FailedCase, SampleId, sha256


@dataclass(frozen=True, slots=True)
class ComparisonBounds:
    """Size limits of a comparison's page: about 20 MB in all.

    Attributes:
        rows: Number of listed pairs.
        texts: Of the samples that were accepted in one run only.
    """

    rows: int = 20_000
    texts: Bounds = field(default_factory=lambda: Bounds(text_bytes=12 * 2**20))


class ComparisonContents:
    """Data of comparisons for embedding into a page."""

    def __init__(self, comparisons: Sequence[Comparison], bounds: ComparisonBounds) -> None:
        """Choose the pairs and texts within the bounds.

        Raises:
            OutputError: A file of a run is invalid.
        """
        self._comparisons, self._bounds = comparisons, bounds
        self._runs = [comparisons[0].first, *(one.second for one in comparisons)]
        paired = [one.paired for each in comparisons for one in each.datasets]
        self._rows = _listed(paired, bounds.rows)
        flips = _flips(paired)
        self._shown = self._within_bounds(flips)
        self.notes = _notes(paired, self._rows, len(flips), len(self._shown))

    def document(self) -> dict[str, object]:
        pairs: dict[str, dict[str, object]] = {}
        rows = iter(self._rows)
        for each in self._comparisons:
            pairs[each.second.label] = {
                one.paired.dataset: _pairs(one.paired, next(rows)) for one in each.datasets
            }
        return {
            "document": asdict(comparison_document(self._comparisons, flips=False)),
            "notes": self.notes,
            "pairs": pairs,
            "samples": {run.label: dict(self._texts(run)) for run in self._runs},
            "prompts": dict(self._prompts()),
        }

    def _within_bounds(self, flips: Sequence[SampleId]) -> set[SampleId]:
        """The first flips whose texts, of all runs together, fit."""
        bounds = self._bounds.texts
        costs = dict.fromkeys(flips, 0)
        for run in self._runs:
            for verdict, generation in run.run.judged_samples():
                if verdict.sample in costs:
                    completion = generation.completion if generation else ""
                    case = _texts_of(verdict.first_failed_case)
                    costs[verdict.sample] += bounds.cost_of_sample(completion, *case)
        outlines = read_outlines(self._runs[0].run.folder)
        prompts = {
            (one.dataset, one.problem_id): sum(map(bounds.cost, one.texts)) for one in outlines
        }
        left, shown = bounds.text_bytes, set()
        for sample in flips:
            problem = (sample.dataset, sample.problem_id)
            left -= costs[sample] + prompts.pop(problem, 0)
            if left < 0:
                break
            shown.add(sample)
        return shown

    def _texts(self, run: ComparedRun) -> Iterator[tuple[str, object]]:
        for verdict, generation in run.run.judged_samples():
            if verdict.sample in self._shown:
                language = run.record.config.judge.for_dataset(verdict.dataset).language
                yield (
                    verdict.sample.key,
                    shown_texts(verdict, generation, self._bounds.texts, language),
                )

    def _prompts(self) -> Iterator[tuple[str, object]]:
        wanted = {(one.dataset, one.problem_id) for one in self._shown}
        for outline in read_outlines(self._runs[0].run.folder):
            if (outline.dataset, outline.problem_id) in wanted:
                key = SampleId(outline.dataset, outline.problem_id).key
                yield key, shown_prompt(outline, self._bounds.texts)


def _pairs(paired: PairedSamples, places: Ints) -> dict[str, object]:
    problems = paired.problem
    return {
        "problems": paired.problem_ids,
        "slices": {
            dimension: {bucket: found.tolist() for bucket, found in buckets.items()}
            for dimension, buckets in paired.buckets.items()
        },
        "rows": [
            [
                int(problems[place]),
                pair.sample.sample_index,
                _verdict(pair.first),
                _verdict(pair.second),
            ]
            for place in places.tolist()
            for pair in [paired.pair(place)]
        ],
    }


def _verdict(verdict: SampleVerdict) -> dict[str, object]:
    return {name: value for name, value in asdict(verdict).items() if name != "pass_ratio"}


def _listed(paired: Sequence[PairedSamples], most: int) -> list[Ints]:
    """The places of the listed pairs of each: flips first, then other statuses, then the rest."""
    found = [np.zeros(len(one), dtype=bool) for one in paired]
    kinds: list[list[Ints]] = [[], [], []]
    for one in paired:
        first, second = one.columns(lambda verdicts: verdicts.status)
        flipped = one.flipped != 0
        kinds[0].append(np.flatnonzero(flipped))
        kinds[1].append(np.flatnonzero((first != second) & ~flipped))
        kinds[2].append(np.flatnonzero((first == second) & ~flipped))
    left = most
    for kind in kinds:
        for chosen, places in zip(found, kind, strict=True):
            chosen[places[:left]] = True
            left = max(0, left - len(places))
    return [np.flatnonzero(chosen) for chosen in found]


def _flips(paired: Sequence[PairedSamples]) -> list[SampleId]:
    """All flips, in turn from each comparison, data set and direction, in the order of hashes."""
    groups = [
        sorted((pair.sample for pair in pairs), key=lambda sample: sha256(sample.key))
        for one in paired
        for pairs in (one.gained, one.lost)
    ]
    turns = chain.from_iterable(zip_longest(*groups))
    return list(dict.fromkeys(sample for sample in turns if sample is not None))


def _notes(
    paired: Sequence[PairedSamples], rows: Sequence[Ints], flips: int, shown: int
) -> list[str]:
    notes = []
    pairs, listed = sum(map(len, paired)), sum(map(len, rows))
    if listed < pairs:
        notes.append(
            f"{listed} of {pairs} pairs are listed, flips first; the figures cover all of them."
        )
    if shown < flips:
        notes.append(
            f"Prompt, code and failed case are included for {shown} of {flips} samples that were "
            "accepted in one run only; the runs' folders have all."
        )
    return notes


def _texts_of(case: FailedCase | None) -> tuple[str | None, ...]:
    return (case.input, case.expected, case.actual, case.stderr) if case else ()
