"""``python -m plumbline_reward``: check that this environment reaches the service and its verdicts.

``path MODULE`` prints the path of a module, for trainers that want a file.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from plumbline_reward.client import Client
from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.rows import judged_item

CHECK_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 something is wrong, 2 wrong usage."""
    parser = argparse.ArgumentParser("python -m plumbline_reward", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    parser.set_defaults(url=None, timeout=CHECK_SECONDS, ground_truth=None, completion=None)
    check = commands.add_parser("check", help="ask the service what it is, and for a score")
    check.add_argument("--url", help="address of the service (PLUMBLINE_REWARD_URL)")
    check.add_argument("--timeout", type=float, default=CHECK_SECONDS, help="seconds (%(default)g)")
    check.add_argument("--ground-truth", help="a reference or inline tests")
    check.add_argument("--completion", type=Path, help="file with a completion to score")
    path = commands.add_parser("path", help="print the path of a module of this package")
    path.add_argument("module", help="for example openrlhf_reward, verl_code_interpreter")
    options = parser.parse_args(arguments)
    if options.command == "path":
        return _print_path(options.module)
    if (options.ground_truth is None) != (options.completion is None):
        return _fail("a score needs both --ground-truth and --completion", 2)
    try:
        client = Client(options.url, timeout=options.timeout, purpose="validation")
    except ValueError as error:
        return _fail(f"a setting is wrong: {error}")
    try:
        return _check(client, options.ground_truth, options.completion)
    except RefusedError as error:
        token = "\nset PLUMBLINE_REWARD_TOKEN to the service's token"
        return _fail(f"{error}{token if error.status == 401 else ''}")
    except NotJudgedError as error:
        advice = "is the service running there, and is it ready (/readyz)?"
        if "PLUMBLINE_REWARD_URL" not in os.environ:
            advice = "PLUMBLINE_REWARD_URL is not set; set it to the address of your service"
        return _fail(f"{error}\n{advice}")


def _check(client: Client, ground_truth: str | None, completion: Path | None) -> int:
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
    if ground_truth is None or completion is None:
        return 0
    try:
        text = completion.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _fail(f"{completion} cannot be read: {error}")
    (verdict,) = client.score([judged_item(ground_truth, text, "inline")])
    if verdict is None:
        return _fail("  not judged")
    print(
        f"  score {verdict.score:g}: {verdict.status},"
        f" {verdict.cases_passed} of {verdict.cases_total} cases passed,"
        f" judged in {verdict.judge_seconds:.2f} s" + (", remembered" if verdict.cached else "")
    )
    return 0


def _print_path(module: str) -> int:
    spec = importlib.util.find_spec(f"plumbline_reward.{module}") if module.isidentifier() else None
    if spec is None or spec.origin is None:
        return _fail(f"plumbline_reward has no module {module!r}", 2)
    print(spec.origin)
    return 0


def _fail(text: str, code: int = 1) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
