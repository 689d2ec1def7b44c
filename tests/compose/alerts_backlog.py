"""Fault injection for the aggregator's container: a disk that rejects writes of the index.

Nobody else can write the index, and a run gets 1200 verdicts, until standard input ends.
"""

import os
import sqlite3
import sys
from contextlib import closing

from shared.ledger import Ledger, connect
from shared.run_record import RunMeta
from shared.schemas import Generation, SampleId
from shared.service.settings import RedisSettings

VERDICTS = 1200


def add_verdict(ledger: Ledger, number: int) -> None:
    sample = SampleId("backlog", str(number))
    ledger.record(Generation.missing(sample))


def main() -> None:
    ledger = Ledger(connect(RedisSettings().redis_url), "backlog")
    index = f"{os.environ['PLUMBLINE_INDEX_DIR']}/index.sqlite"
    with closing(sqlite3.connect(index, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        ledger.open(RunMeta(), None, [])
        for number in range(VERDICTS):
            add_verdict(ledger, number)
        sys.stdin.read()
        ledger.delete()


if __name__ == "__main__":
    main()
