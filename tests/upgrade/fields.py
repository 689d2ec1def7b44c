"""Fields of the records in Redis: `python -m tests.upgrade.fields` prints those of this release.

An earlier release refuses a record with a field or value that it does not know, so a change here is
another version of the ledger (``shared.run_record.VERSION``) with a recording of its own.
"""

import json
from typing import Any

from pydantic import TypeAdapter

from shared.case_records import SampleCases
from shared.ledger.rewards import RewardAnswer
from shared.plan import RunPlan
from shared.programs import ProgramAnswer, ProgramRequest
from shared.run_record import RunState
from shared.schemas import Generation, Problem, Verdict

_RECORDS = (
    *(Generation, Problem, Verdict, SampleCases, RunPlan),
    *(RewardAnswer, ProgramRequest, ProgramAnswer, RunState),
)


def fields() -> dict[str, list[str]]:
    """Names of fields, or values of enums, by the name of their type."""
    found: dict[str, list[str]] = {}
    for record in _RECORDS:
        schema = TypeAdapter(record).json_schema()
        types = {**schema.get("$defs", {}), record.__name__: schema}
        found |= {name: _names(one) for name, one in types.items()}
    return dict(sorted(found.items()))


def _names(schema: dict[str, Any]) -> list[str]:
    return sorted(map(str, schema.get("enum") or schema.get("properties") or []))


if __name__ == "__main__":
    print(json.dumps(fields(), indent=1))
