"""The index: what is asked of the runs, in one SQLite file that can be made again at any time.

It is a materialized view of the ledger: a row per judged sample, tallies that triggers keep, and
counters that outlive the runs.
"""

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.rows import SampleRow

__all__ = ["Database", "SampleRow", "open_database"]
