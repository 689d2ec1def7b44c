"""``python -m plumbline_reward``: check that this environment reaches the service and its sandbox.

Settings come from the environment.
"""

import os
import sys

from plumbline_reward.client import Client
from plumbline_reward.errors import NotJudgedError, RefusedError

CHECK_SECONDS = 30.0


def main(timeout: float = CHECK_SECONDS) -> int:
    """Run the command and return its exit code: 0 fine, 1 something is wrong."""
    try:
        client = Client(timeout=timeout, purpose="validation")
        _check(client)
    except ValueError as error:
        problem = f"a setting is wrong: {error}"
    except RefusedError as error:
        token = "\nset PLUMBLINE_REWARD_TOKEN to the service's token"
        problem = f"{error}{token if error.status == 401 else ''}"
    except NotJudgedError as error:
        advice = "is the service running there, and is it ready (/readyz)?"
        if "PLUMBLINE_REWARD_URL" not in os.environ:
            advice = "PLUMBLINE_REWARD_URL is not set; set it to the address of your service"
        problem = f"{error}\n{advice}"
    else:
        return 0
    print(problem, file=sys.stderr)
    return 1


def _check(client: Client) -> None:
    info = client.info()
    print(f"{client.settings.url}: Plumbline {info.get('version', '(unknown version)')}")
    datasets = info.get("datasets")
    for name, facts in datasets.items() if isinstance(datasets, dict) else []:
        print(f"  {name}: {facts['problems']} problems, role {facts['role']}")
    if not datasets:
        print("  no data sets: it judges inline tests only (PLUMBLINE_REWARD_DATA of the service)")
    try:
        result = client.run("print(6 * 7)")
        print(f"  a program ran: {result.status}, printed {result.stdout.strip()!r}")
    except RefusedError as error:
        print(f"  programs are not run, so there are no tools: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
