"""Answers about compared runs, and the names of the runs in a query."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from services.aggregator.comparison.flips import select_pairs
from services.aggregator.comparison.models import ComparisonAnswer, FlipPage, FlipsQuery
from services.aggregator.comparison.source import read_detail
from services.aggregator.index.overview import IndexedRun
from shared.analysis.compare import Comparison, comparison_document, flip_document
from shared.errors import DataError

MOST_RUNS = 10


def run_names(text: str, most: int = MOST_RUNS) -> list[str]:
    """Split a list of run ids, which are percent-encoded within it.

    Raises:
        DataError: Fewer than two runs or more than ``most``, or one twice.
    """
    names = [unquote(one) for one in text.split(",") if one]
    if len(names) < 2:
        raise DataError("runs: one run cannot be compared; give two or more, separated by commas")
    if len(names) > most:
        raise DataError(f"runs: {len(names)} runs; give at most {most}")
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise DataError(f"runs: {twice[:200]!r} is given twice; leave it out once")
    return names


class ComparedRuns:
    """Comparisons of runs of the index with the first of them."""

    def __init__(self, comparisons: Sequence[Comparison], runs: Sequence[IndexedRun]) -> None:
        self._comparisons, self._runs = comparisons, runs

    def answer(self) -> ComparisonAnswer:
        return ComparisonAnswer(comparison_document(self._comparisons, flips=False))

    def flips(self, connection: sqlite3.Connection, query: FlipsQuery) -> FlipPage:
        """A page of the pairs of two runs.

        Raises:
            DataError: The runs do not have the data set in common, or not the slice.
        """
        datasets = {one.paired.dataset: one.paired for one in self._comparisons[0].datasets}
        if (paired := datasets.get(query.dataset)) is None:
            known = ", ".join(datasets)
            raise DataError(f"dataset: {query.dataset!r} is not in both runs; {known} are")
        places = select_pairs(paired, query)
        end = query.offset + query.limit
        shown = [paired.pair(int(place)) for place in places[query.offset : end]]
        detailed = [
            replace(
                pair,
                **{
                    side: replace(
                        getattr(pair, side), detail=read_detail(connection, run.id, pair.sample)
                    )
                    for side, run in zip(("first", "second"), self._runs, strict=True)
                },
            )
            for pair in shown
        ]
        return FlipPage(
            total=len(places),
            flips=[flip_document(pair) for pair in detailed],
            next=end if end < len(places) else None,
        )
