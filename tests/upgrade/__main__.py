"""`make upgrade-check FROM=<commit>`: an earlier release and the present one in one run.

The earlier release is the sources of a commit in a temporary folder, run with the packages that are
installed here. Each row starts real processes (Redis, sandbox, judges, aggregator, `plumb`) and is
one of: `works` (every sample has the verdict of an undisturbed run), `refused` (an exit code and a
line that say why), `waits` (the command says for what), or `FAILS`. Ends with exit code 1 if a row
fails.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import RedisServer
from tests.e2e.plumb import verdicts_so_far
from tests.upgrade.releases import (
    DEMO,
    Ended,
    Release,
    checked_out,
    external_stack,
    last_line,
    next_release,
    present,
    record,
    statuses,
)

# Slow enough to be killed in the middle.
_SLOW = ("generation.replay.latency=0.3", "generation.concurrency=2", "judge.workers=1")


# What a runner says whose run no judge or aggregator reads.
WAITS = (
    "a judge returns jobs of this run to the queue",
    "waiting for an aggregator to write the artifacts",
)
TOO_LATE = 124


class Matrix:
    """The rows: releases combined in one run."""

    def __init__(self, old: Release, new: Release, folder: Path, problems: int) -> None:
        self.old, self.new, self.folder = old, new, folder
        self._limit = f"data.limit={problems}"
        self._rows = 0
        self.expected: dict[str, str] = {}

    def rows(self) -> dict[str, Callable[[], str]]:
        old, new = self.old, self.new
        return {
            "both: all services of the earlier release": lambda: self._side_by_side(old, old, old),
            "earlier runner, present judges and aggregator": lambda: self._side_by_side(
                old, new, new
            ),
            "present runner, earlier judges and aggregator": lambda: self._side_by_side(
                new, old, old
            ),
            "present runner and judges, earlier aggregator": lambda: self._side_by_side(
                new, new, old
            ),
            "present runner and aggregator, earlier judges": lambda: self._side_by_side(
                new, old, new
            ),
            "present runner, judges of both (rolling update)": lambda: self._side_by_side(
                new, (old, new), new
            ),
            "earlier runner, judges of both (rolling update)": lambda: self._side_by_side(
                old, (old, new), new
            ),
            "run begun by the earlier release, resumed by the present": lambda: self._resumed(
                old, new
            ),
            "run begun by the present release, resumed by the earlier": lambda: self._resumed(
                new, old
            ),
            "finished run of the earlier release, repeated by the present": lambda: self._repeated(
                old, new
            ),
            "finished run of the present release, repeated by the earlier": lambda: self._repeated(
                new, old
            ),
            "index of the earlier release, opened by the present": lambda: self._index(old, new),
            "index of the present release, opened by the earlier": lambda: self._index(new, old),
            "folder of the earlier release, read by the present": lambda: self._read(old, new),
            "folder of the present release, read by the earlier": lambda: self._read(new, old),
            "earlier reward client, present service": lambda: self._reward(old, new, new),
            "present reward client, earlier service": lambda: self._reward(new, old, old),
            "present reward service, earlier judges": lambda: self._reward(new, new, old),
            "earlier reward service, present judges": lambda: self._reward(old, old, new),
        }

    def find_expected(self) -> None:
        """Statuses of an undisturbed run of the present release."""
        output = self.place("expected")
        done = self.new.plumb(self._run(output))
        if done.returncode:
            raise SystemExit(f"the present release alone: {last_line(done.stderr)}")
        self.expected = statuses(output)

    def place(self, name: str) -> Path:
        self._rows += 1
        folder = self.folder / f"{self._rows}-{name}"
        folder.mkdir()
        return folder

    def _run(self, output: Path, *more: str, embedded: bool = True) -> list[str]:
        return run_arguments(output, self._limit, *more, embedded=embedded)

    def _side_by_side(
        self, runner: Release, judges: Release | Sequence[Release], aggregator: Release
    ) -> str:
        folder = self.place("side-by-side")
        output = folder / "output"
        judging = (judges,) if isinstance(judges, Release) else tuple(judges)
        releases = {"generator": (runner,), "judge": judging, "aggregator": (aggregator,)}
        with (
            self._redis(folder) as redis,
            runner.service("sandbox", folder / "sandbox") as sandbox,
            external_stack(folder, releases, redis, sandbox) as settings,
        ):
            done = runner.plumb(self._run(output, embedded=False), settings)
            return self._outcome(output, done.returncode, done.stderr)

    def _resumed(self, first: Release, second: Release) -> str:
        output = self.place("resumed") / "output"
        some = min(10, len(self.expected) // 3)
        first.killed_plumb(self._run(output, *_SLOW), lambda: verdicts_so_far(output) >= some)
        done = second.plumb(self._run(output, "judge.workers=1"))
        found = self._outcome(output, done.returncode, done.stderr)
        if found != "works":
            return found
        written = record(output)["completions_written"]
        if written != len(self.expected):
            return f"FAILS: {written} completions were written of {len(self.expected)} samples"
        return found

    def _repeated(self, first: Release, second: Release) -> str:
        output = self.place("repeated") / "output"
        first.plumb(self._run(output))
        done = second.plumb(self._run(output))
        found = self._outcome(output, done.returncode, done.stderr)
        again = record(output).get("completions_written")
        if found == "works" and again != len(self.expected):
            return f"FAILS: {again} completions were written of {len(self.expected)} samples"
        return found

    def _index(self, first: Release, second: Release) -> str:
        """Both aggregators over one ledger and one folder of the index, one after the other."""
        folder = self.place("index")
        output = folder / "output"
        releases = {"generator": (first,), "judge": (first,), "aggregator": (first,)}
        with (
            self._redis(folder) as redis,
            first.service("sandbox", folder / "sandbox") as sandbox,
        ):
            with external_stack(folder, releases, redis, sandbox) as settings:
                first.plumb(self._run(output, embedded=False), settings)
            index = {"REDIS_URL": redis.url, "PLUMBLINE_INDEX_DIR": str(folder / "index")}
            log = folder / "second"
            with second.service("aggregator", log, **index) as url:
                found = _indexed(url, len(self.expected))
            said = [line for line in (log / "log").read_text().splitlines() if '"index' in line]
            if "Traceback" in (log / "log").read_text():
                return f"FAILS: {last_line((log / 'log').read_text())}"
            noted = f" ({json.loads(said[0])['event']})" if said else ""
            complete = found == len(self.expected)
            return f"works{noted}" if complete else f"FAILS: {found} samples in the index"

    def _read(self, first: Release, second: Release) -> str:
        output = self.place("read") / "output"
        first.plumb(self._run(output))
        for command in (("show",), ("report",), ("compare",)):
            names = [str(output)] * (2 if command == ("compare",) else 1)
            done = second.plumb([*command, *names])
            if "No such command" in done.stderr:
                continue
            if done.returncode:
                return _refusal(done.returncode, done.stderr)
        return "works"

    def _reward(self, client: Release, service: Release, judges: Release) -> str:
        folder = self.place("reward")
        sources = client.root / "clients" / "reward"
        if not (sources.exists() and (service.root / "services/reward").exists()):
            return "none (that release has no reward service)"
        program = folder / "program.md"
        program.write_text("```python\nprint(sum(map(int, input().split())))\n```\n")
        tests = json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})
        with (
            self._redis(folder) as redis,
            judges.service("sandbox", folder / "sandbox") as sandbox,
            ExitStack() as stack,
        ):
            common = {"REDIS_URL": redis.url, "SANDBOX_URLS": sandbox}
            stack.enter_context(judges.service("judge", folder / "judge", **common))
            url = stack.enter_context(service.service("reward", folder / "service", **common))
            asking = Release(client.name, sources)
            check = ["check", "--url", url, "--ground-truth", tests, "--completion", str(program)]
            done = asking.run("plumbline_reward", check)
        if done.returncode == 0 and "score 1: success" in done.stdout:
            return "works"
        log = (folder / "judge" / "log").read_text()
        if put_back := [line for line in log.splitlines() if "back to the queue" in line]:
            return f"waits: {last_line(put_back[0])}"
        return _refusal(done.returncode, done.stderr or done.stdout)

    @contextmanager
    def _redis(self, folder: Path) -> Iterator[RedisServer]:
        server = RedisServer(folder / "redis")
        try:
            yield server
        finally:
            server.stop()

    def _outcome(self, output: Path, code: int, said: str) -> str:
        if code:
            return _refusal(code, said)
        found = statuses(output)
        different = [name for name in self.expected if found.get(name) != self.expected[name]]
        if different or found.keys() != self.expected.keys():
            return f"FAILS: {len(different)} of {len(self.expected)} verdicts differ"
        return "works"


def _refusal(code: int | None, said: str) -> str:
    line = last_line(said)
    if code == TOO_LATE:
        notes = [line.strip() for line in said.splitlines() if any(one in line for one in WAITS)]
        return f"waits: {notes[0]}" if notes else f"FAILS (no end in time): {line}"
    refused = code == 2 and not line.startswith("TRACEBACK")
    return f"refused: {line}" if refused else f"FAILS (exit code {code}): {line}"


def run_arguments(output: Path, *overrides: str, embedded: bool) -> list[str]:
    """Arguments of `plumb` for a run on the demo data, wherever it is executed."""
    config = ["run", "--config", str(DEMO.parent / "configs/demo.yaml")]
    data = [
        f"data.eval_files=[{DEMO / 'data'}]",
        f"data.lock={DEMO / 'data_manifests/manifest.lock.json'}",
        f"generation.replay.completions={DEMO / 'completions.jsonl'}",
    ]
    stack = ["--embedded"] if embedded else []
    return [*config, "--output", str(output), *stack, *data, *overrides]


def _indexed(url: str, wanted: int) -> int:
    """Verdicts that an aggregator has in its index, as soon as they are as many as wanted."""
    found = -1
    for _ in range(100):
        with urllib.request.urlopen(f"{url}/api/runs", timeout=10) as response:
            found = sum(run["verdicts"] for run in json.load(response).values())
        if found == wanted:
            break
        time.sleep(0.1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make upgrade-check FROM=…", description=__doc__)
    parser.add_argument(
        "commit",
        help="the earlier release; `next`: the committed sources, beside a release after them",
    )
    parser.add_argument("--problems", type=int, default=4, help="problems of each data set")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--keep", help="folder for logs and outputs, which is not removed")
    options = parser.parse_args()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="upgrade-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # programs of other users have their folders below it
    failures = 0
    try:
        if options.commit == "next":
            old, new = checked_out("HEAD", folder / "earlier"), next_release(folder / "next")
        else:
            old, new = checked_out(options.commit, folder / "earlier"), present()
        matrix = Matrix(old, new, folder, options.problems)
        matrix.find_expected()
        print(f"| {old.name} as the earlier release, {new.name} as the present | outcome |")
        print("|---|---|", flush=True)
        for name, row in matrix.rows().items():
            if options.only in name:
                try:
                    outcome = row()
                except Ended as error:
                    outcome = _refusal(error.code, str(error))
                failures += outcome.startswith("FAILS")
                print(f"| {name} | {outcome} |", flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
