"""Finished runs as pandas data frames, each read from the runs' folders when it is first used."""

import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared import artifacts
from shared.analysis.statistics import Metrics
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.finished_run import FinishedRun, open_run, open_runs
from shared.statuses import NOT_RUN, FinalStatus

if TYPE_CHECKING:  # they take a second, which a program that only imports this module must not
    import pandas as pd
    import pyarrow as pa

_Path = str | os.PathLike[str]
_INTERVAL = "_ci95"
_CATEGORIES = {
    *("run", "name", "model", "dataset", "method", "checker", "finish_reason", "difficulty"),
    *("output_tokens_from", "metric", "state"),
}
_STATUSES = {
    "final_status": [status.value for status in FinalStatus],
    "status": [*(status.value for status in FinalStatus), NOT_RUN],
}
_PROBLEM = ["run", "model", "dataset", "problem_id"]


def load_run(path: _Path | Sequence[_Path]) -> "RunFrames":
    """Open finished runs for analysis with pandas.

    Args:
        path: A run's folder, a folder with runs at any depth below it, or a list of both; local
            paths or any fsspec URLs. A run below the folder that cannot be read is left out with a
            warning.

    Returns:
        The runs' data frames. Only ``run.json`` and the summaries are read at once.

    Raises:
        OutputError: There is no finished run, one that is named cannot be read, or two folders hold
            the same run.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    runs = [run for each in paths for run in _open(os.fspath(each))]
    if not runs:
        raise OutputError("no run is named; name the folder of a finished run")
    places: dict[str, str] = {}
    for run in runs:
        if place := places.get(run.record.run):
            raise OutputError(
                f"{place} and {run.folder.shown} hold the same run ({run.record.run}); name one"
            )
        places[run.record.run] = run.folder.shown
    return RunFrames(runs)


def _open(url: str) -> list[FinishedRun]:
    folder = OutputFolder(url)
    if folder.exists(artifacts.RUN):
        return [open_run(url)]
    runs, broken = open_runs(url)
    if not runs:
        cause = f" ({broken[0]})" if broken else ""
        raise OutputError(
            f"{folder.shown}: no finished run in this folder or below it{cause}; name the folder "
            f"that has {artifacts.RUN}"
        )
    for line in broken:
        warnings.warn(f"left out: {line}", stacklevel=3)
    return runs


class RunFrames:
    """Data frames of one run or of several; every frame has the column ``run``, a run's id.

    Integers and truth values are nullable (``Int64``, ``boolean``) and ``NA`` where unknown;
    statuses and names are categories, ``final_status`` with all statuses in their usual order.
    Times are seconds. A frame is made when it is first used and kept; copy it before changing it.
    """

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        self._runs = runs

    def __repr__(self) -> str:
        samples = sum(run.record.samples for run in self._runs)
        names = ", ".join(run.name for run in self._runs)
        return f"<{type(self).__name__} of {names}: {samples} samples>"

    @cached_property
    def runs(self) -> "pd.DataFrame":
        """A row per run: name, model, folder, state, start (UTC), samples and how many were judged.

        ``trusted`` is False if a sandbox judged canaries wrongly.
        """
        import pandas as pd

        rows = [
            {
                **_identity(run),
                "name": run.name,
                "folder": run.folder.shown,
                "state": run.record.state.value,
                "started_at": pd.to_datetime(run.record.started_at, unit="s", utc=True).round("ms"),
                "active_seconds": run.record.active_seconds,
                "samples": run.record.samples,
                "samples_judged": run.record.samples_judged,
                "trusted": not run.record.distrust,
            }
            for run in self._runs
        ]
        return _with_categories(pd.DataFrame(rows))

    @cached_property
    def samples(self) -> "pd.DataFrame":
        """A row per sample, with the columns of ``plumb export --format hf-parquet``.

        ``accepted`` and ``pass_ratio`` are unknown where a sample has no verdict.

        Raises:
            OutputError: While reading: a file of a run is missing or invalid.
        """
        from services.exports.samples import load_samples
        from services.exports.tables import sample_table

        tables = []
        for run in self._runs:
            tables.append(sample_table(load_samples(run)))
            for line in run.skipped:
                warnings.warn(line, stacklevel=2)
        return _frame(tables)

    @cached_property
    def problems(self) -> "pd.DataFrame":
        """A row per run and problem: the problem without its tests, and how it was answered.

        ``prompt_chars`` is the prompt's length, ``num_tests`` the number of tests, ``tags`` a list,
        ``quality`` the findings of the data audit. ``judged`` of ``samples`` samples have a
        verdict, and ``accepted`` of them were accepted; ``solved`` says whether any was, and is
        unknown where none was judged. ``pass_ratio`` is their mean, ``output_tokens`` their sum
        (unknown if any of them is).

        Raises:
            OutputError: While reading: a file of a run is missing or invalid.
        """
        import pyarrow as pa

        from shared.outlines import read_outlines

        columns: dict[str, pa.DataType] = dict.fromkeys((*_PROBLEM, "prompt"), pa.string())
        columns |= {"prompt_chars": pa.int64(), "difficulty": pa.string()}
        columns |= {"tags": pa.list_(pa.string()), "num_tests": pa.int64()}
        columns |= {"entry_point": pa.string(), "quality": pa.string()}
        rows = [
            {
                **outline.model_dump(mode="json"),
                **_identity(run),
                "prompt_chars": len(outline.prompt),
            }
            for run in self._runs
            for outline in read_outlines(run.folder)
        ]
        problems = _frame([pa.Table.from_pylist(rows, schema=pa.schema(columns))])
        return _with_categories(problems.merge(self._answered(), how="left", on=_PROBLEM))

    @cached_property
    def cases(self) -> "pd.DataFrame":
        """A row per recorded case, as ``cases.jsonl.gz`` has them.

        Runs record cases if ``output.cases`` says so; without a record the frame is empty. Texts
        are shortened, memory is MiB.

        Raises:
            OutputError: While reading: a file of a run is invalid.
        """
        from services.exports.tables import case_table

        return _frame([case_table(run) for run in self._runs])

    @cached_property
    def figures(self) -> "pd.DataFrame":
        """A row per run, data set and metric: ``value``, and its interval from ``low`` to ``high``.

        The interval of a metric is its ``<metric>_ci95`` of the summary. A metric that is itself an
        interval, such as ``accepted_at_1_bounds``, has no value. What is undefined is NaN.
        """
        import pandas as pd

        rows = [
            {**_identity(run), "dataset": dataset, **row}
            for run in self._runs
            for dataset, metrics in run.summary.items()
            for row in _figures(metrics)
        ]
        columns = ["run", "model", "dataset", "metric", "value", "low", "high"]
        frame = pd.DataFrame(rows, columns=columns)
        return _with_categories(frame.astype(dict.fromkeys(columns[4:], "float64")))

    def _answered(self) -> "pd.DataFrame":
        """Per run and problem, counts and means over its samples."""
        import pandas as pd

        samples = self.samples[[*_PROBLEM, "accepted", "pass_ratio", "output_tokens"]]
        groups = samples.groupby(_PROBLEM, observed=True, sort=False)
        judged = groups.accepted.count()
        accepted = groups.accepted.sum().astype("Int64")
        complete = groups.output_tokens.count() == groups.size()
        columns = {
            "samples": groups.size().astype("Int64"),
            "judged": judged.astype("Int64"),
            "accepted": accepted,
            "solved": (accepted > 0).where(judged > 0).astype("boolean"),
            "pass_ratio": groups.pass_ratio.mean(),
            "output_tokens": groups.output_tokens.sum().where(complete).astype("Int64"),
        }
        return pd.DataFrame(columns).reset_index()


def _identity(run: FinishedRun) -> dict[str, Any]:
    return {"run": run.record.run, "model": run.record.served_model or ""}


def _figures(metrics: Metrics) -> Iterator[dict[str, Any]]:
    for name, value in metrics.items():
        if name.endswith(_INTERVAL) and name.removesuffix(_INTERVAL) in metrics:
            continue
        interval = value if isinstance(value, list) else metrics.get(f"{name}{_INTERVAL}")
        low, high = interval if isinstance(interval, list) else (None, None)
        number = None if isinstance(value, list) else value
        yield {"metric": name, "value": number, "low": low, "high": high}


# Arrow tables as frames


def _frame(tables: "Sequence[pa.Table]") -> "pd.DataFrame":
    import pandas as pd
    import pyarrow as pa

    kinds = {
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype("pyarrow"),
    }
    return _with_categories(pa.concat_tables(tables).to_pandas(types_mapper=kinds.get))


def _with_categories(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Make categories of statuses and of names that repeat."""
    import pandas as pd

    kinds: dict[str, Any] = {}
    for name in frame.columns:
        if name in _STATUSES:
            kinds[name] = pd.CategoricalDtype(_STATUSES[name])
        elif name in _CATEGORIES:
            kinds[name] = pd.CategoricalDtype(list(frame[name].dropna().unique()))
    return frame.astype(kinds)
