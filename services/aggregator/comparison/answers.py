"""Answers about compared runs, and the names of the runs in a query."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from services.aggregator.comparison.flips import select_pairs
from services.aggregator.comparison.models import FlipPage, FlipsQuery
from services.aggregator.comparison.source import read_detail
from services.aggregator.index.overview import IndexedRun
from shared.analysis.compare import Comparison, FlipDocument, Pair, flip_document
from shared.errors import DataError

MOST_RUNS = 10


def run_names(text: str, most: int = MOST_RUNS, least: int = 2) -> list[str]:
    """Split a list of run ids, which are percent-encoded within it.

    Raises:
        DataError: Fewer runs than ``least`` or more than ``most``, or one twice.
    """
    names = [unquote(one) for one in text.split(",") if one]
    if len(names) < least:
        raise DataError("runs: one run cannot be compared; give two or more, separated by commas")
    if len(names) > most:
        raise DataError(f"runs: {len(names)} runs; give at most {most}")
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise DataError(f"runs: {twice[:200]!r} is given twice; leave it out once")
    return names


def flip_page(
    connection: sqlite3.Connection,
    compared: Comparison,
    runs: Sequence[IndexedRun],
    query: FlipsQuery,
) -> FlipPage:
    """A page of the pairs of two runs.

    Raises:
        DataError: The runs do not have the data set in common, or not the slice.
    """
    datasets = {one.paired.dataset: one.paired for one in compared.datasets}
    if (paired := datasets.get(query.dataset)) is None:
        known = ", ".join(datasets)
        raise DataError(f"dataset: {query.dataset!r} is not in both runs; {known} are")
    places = select_pairs(paired, query)
    end = query.offset + query.limit

    def shown(pair: Pair) -> FlipDocument:
        ours, theirs = (read_detail(connection, run.id, pair.sample) for run in runs)
        detailed = replace(
            pair,
            first=replace(pair.first, detail=ours),
            second=replace(pair.second, detail=theirs),
        )
        return flip_document(detailed)

    return FlipPage(
        total=len(places),
        flips=[shown(paired.pair(int(place))) for place in places[query.offset : end]],
        next=end if end < len(places) else None,
    )
