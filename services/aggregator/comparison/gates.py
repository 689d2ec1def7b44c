"""The gate's verdict on indexed runs, each against a baseline."""

import sqlite3
import threading

from services.aggregator.comparison.cache import Comparisons
from services.aggregator.index.overview import IndexedRun
from shared.analysis.gate import GateReport, evaluate
from shared.analysis.gate_policy import NamedPolicy

_CACHED = 5000


class Gates:
    """Checks runs against a policy, one at a time, and remembers the reports."""

    def __init__(self, policy: NamedPolicy | None, comparisons: Comparisons) -> None:
        """``policy``: the rules; None without a policy."""
        self._policy = policy
        self._comparisons = comparisons
        self._reports: dict[tuple[object, ...], GateReport] = {}
        self._lock = threading.Lock()

    def report(
        self, connection: sqlite3.Connection, baseline: IndexedRun, run: IndexedRun
    ) -> GateReport | None:
        """Check a run against a baseline; None without a policy.

        Rules for data sets that neither run has are left out: one policy serves all runs.

        Raises:
            DataError: The runs have no data set in common, or settings of another version.
        """
        if self._policy is None:
            return None
        key = tuple((one.id, one.version) for one in (baseline, run))
        if (known := self._reports.get(key)) is not None:
            return known
        with self._lock:
            (compared,) = self._comparisons.of(connection, [baseline, run])
            present = {*compared.first.verdicts, *compared.second.verdicts}
            rules = self._policy.policy
            own = {name: one for name, one in rules.datasets.items() if name in present}
            rules = rules.model_copy(update={"datasets": own})
            found = evaluate(rules, compared)
            self._reports[key] = found
            while len(self._reports) > _CACHED:
                del self._reports[next(iter(self._reports))]
            return found
