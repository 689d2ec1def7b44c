"""Reward traffic beside a run, by a service on the run's Redis, whose judges answer both."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from itertools import count
from pathlib import Path

from tests.chaos.invariants import Undisturbed, Violation, rewarded
from tests.e2e.plumb import DEMO, REPOSITORY

_BATCH = 4
_SECONDS = 30.0


class RewardTraffic:
    """A reward service, and a client that asks it for rewards until :meth:`end`.

    Attributes:
        judged: Rewards that came.
        found: Those that are not the undisturbed run's.
    """

    def __init__(self, redis_url: str, folder: Path, expected: Undisturbed) -> None:
        self.judged = 0
        self.found: list[Violation] = []
        self._expected = expected
        self._port_file = folder / "reward.port"
        self._port_file.unlink(missing_ok=True)
        self._ended = threading.Event()
        settings = {
            "REDIS_URL": redis_url,
            "HOST": "127.0.0.1",
            "PORT": "0",
            "PLUMBLINE_PORT_FILE": str(self._port_file),
            "PLUMBLINE_REWARD_DATA": str(DEMO / "data"),
            "PLUMBLINE_REWARD_CONFIG": str(REPOSITORY / "configs/demo.yaml"),
            "PLUMBLINE_REWARD_ALLOW_EVAL": "true",
            "TMPDIR": str(folder / "tmp"),
        }
        with (folder / "reward.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.reward"],
                cwd=REPOSITORY,
                env={"PATH": os.environ["PATH"], **settings},
                stdout=log,
                stderr=log,
            )
        self._client = threading.Thread(target=self._ask, daemon=True)
        self._client.start()

    def end(self) -> None:
        """Kill the service; what it has in flight stays in Redis."""
        self._ended.set()
        self._process.kill()
        self._process.wait()
        self._client.join()

    def _ask(self) -> None:
        # A comment makes each completion another one; it would make a program of one without any.
        verdicts = self._expected.verdicts.items()
        samples = [key for key, (one,) in verdicts if one["final_status"] != "empty_output"]
        for number in count():
            if self._ended.wait(0.05):
                return
            begin = number * _BATCH % len(samples)
            self._score(number, samples[begin : begin + _BATCH])

    def _score(self, number: int, samples: list[str]) -> None:
        """Ask for the rewards of completions that nobody asked for before."""
        items = []
        for sample in samples:
            (given,) = self._expected.generations[sample]
            completion = f"# Answer {number}\n\n{given['completion']}"
            names = {name: given[name] for name in ("dataset", "problem_id")}
            items.append({"id": sample, "completion": completion, **names})
        body = {"items": items, "purpose": "validation", "deadline": _SECONDS}
        with suppress(OSError, HTTPException, ValueError):  # it is not there, or refuses
            for result in self._post(body):
                if result["judged"]:
                    self.judged += 1
                    self.found += rewarded(result, self._expected)

    def _post(self, body: object) -> list[dict[str, object]]:
        url = f"http://127.0.0.1:{int(self._port_file.read_text())}/v1/score"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=2 * _SECONDS) as answer:
            return list(json.load(answer)["results"])
