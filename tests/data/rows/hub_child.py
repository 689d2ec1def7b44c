"""Hub reader in a separate process, because ``HF_ENDPOINT`` is read on import.

Gets a JSON list of calls on each line, and writes a line with a JSON list of the results.
"""

import json
import sys

from services.data.config import HubSource
from services.data.rows import hub
from shared.errors import DataError


def answer(call):
    source = HubSource(kind="huggingface", **call["source"])
    try:
        if call.get("resolve"):
            return hub.resolve_revision(source, offline=call.get("offline", False))
        columns = ("number", "tests")
        return list(hub.rows(source, columns, offline=call.get("offline", False)))
    except DataError as error:
        return str(error)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps([answer(call) for call in json.loads(line)]), flush=True)
