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
from plumbline_reward.ground_truth import judged_item

CHECK_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 something is wrong, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    if options.command == "path":
        return _print_path(options.module)
    if (options.ground_truth is None) != (options.completion is None):
        print("a score needs both --ground-truth and --completion", file=sys.stderr)
        return 2
    try:
        client = Client(options.url, timeout=options.timeout, purpose=options.purpose)
    except ValueError as error:
        print(f"a setting is wrong: {error}", file=sys.stderr)
        return 1
    try:
        return _check(client, options.ground_truth, options.completion)
    except RefusedError as error:
        print(str(error), file=sys.stderr)
        if error.status == 401:
            print("set PLUMBLINE_REWARD_TOKEN to the service's token", file=sys.stderr)
    except NotJudgedError as error:
        print(str(error), file=sys.stderr)
        print(_advice(client), file=sys.stderr)
    return 1


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
        print(f"{completion} cannot be read: {error}", file=sys.stderr)
        return 1
    (verdict,) = client.score([judged_item(ground_truth, text, "inline")])
    if verdict is None:
        print("  not judged", file=sys.stderr)
        return 1
    print(
        f"  score {verdict.score:g}: {verdict.status},"
        f" {verdict.cases_passed} of {verdict.cases_total} cases passed,"
        f" judged in {verdict.judge_seconds:.2f} s" + (", remembered" if verdict.cached else "")
    )
    return 0


def _advice(client: Client) -> str:
    if "PLUMBLINE_REWARD_URL" not in os.environ:
        return (
            f"PLUMBLINE_REWARD_URL is not set, so {client.settings.url} was asked; start a service"
            " with `plumb reward --embedded` or set the address of yours"
        )
    return "is the service running there, and is it ready (/readyz)?"


def _print_path(module: str) -> int:
    spec = importlib.util.find_spec(f"plumbline_reward.{module}") if module.isidentifier() else None
    if spec is None or spec.origin is None:
        print(f"plumbline_reward has no module {module!r}", file=sys.stderr)
        return 2
    print(spec.origin)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m plumbline_reward", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    parser.set_defaults(
        url=None, timeout=CHECK_SECONDS, purpose=None, ground_truth=None, completion=None
    )
    check = commands.add_parser("check", help="ask the service what it is, and for a score")
    check.add_argument("--url", help="address of the service (PLUMBLINE_REWARD_URL)")
    check.add_argument("--timeout", type=float, default=CHECK_SECONDS, help="seconds (%(default)g)")
    check.add_argument("--purpose", choices=("train", "validation"), default="validation")
    check.add_argument("--ground-truth", help="a reference or inline tests")
    check.add_argument("--completion", type=Path, help="file with a completion to score")
    path = commands.add_parser("path", help="print the path of a module of this package")
    path.add_argument("module", help="for example openrlhf_reward, verl_code_interpreter")
    return parser


if __name__ == "__main__":
    sys.exit(main())
