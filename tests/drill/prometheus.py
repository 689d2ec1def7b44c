"""Prometheus' API, and its configuration with compressed times."""

import json
import re
import urllib.error
import urllib.request
from typing import Any

# Prometheus evaluates and scrapes once a second at most, so ten minutes must stay many seconds.
FACTOR = 60
_UNITS = {"s": 1, "m": 60, "h": 3600}
_INTERVAL = re.compile(r"\b(\w+_interval: *)\d+[smh]\b")
_DURATION = re.compile(r"(\bfor: *|\[)(\d+)([smh])\b")
_THRESHOLD = re.compile(r"(seconds\s*[<>]=?\s*)(\d+)\b")


def compressed(text: str, factor: int = FACTOR) -> str:
    """A configuration or rules whose times are ``1 / factor`` of what they were.

    These are ``for``, ranges, and the numbers that a metric in seconds is compared with; every
    ``…_interval`` becomes one second. All else stays as it is.
    """
    text = _INTERVAL.sub(r"\g<1>1s", text)
    text = _DURATION.sub(lambda match: f"{match[1]}{_milliseconds(match, factor)}ms", text)
    return _THRESHOLD.sub(lambda match: f"{match[1]}{int(match[2]) / factor:g}", text)


def _milliseconds(match: re.Match[str], factor: int) -> int:
    return int(match[2]) * _UNITS[match[3]] * 1000 // factor


class Prometheus:
    """Client of the server on this machine's ``port``."""

    def __init__(self, port: str) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=5) as answer:
            return json.load(answer)["data"]

    def answers(self) -> bool:
        try:
            self.ask("status/runtimeinfo")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def targets(self) -> list[tuple[str, str]]:
        """Job and health of each target, sorted."""
        targets = self.ask("targets?state=active")["activeTargets"]
        return sorted((target["labels"]["job"], target["health"]) for target in targets)

    def rules(self) -> dict[str, dict[str, Any]]:
        groups = self.ask("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def alerts(self) -> dict[str, set[str]]:
        """The states in which each alert that is not inactive is."""
        states: dict[str, set[str]] = {}
        for alert in self.ask("alerts")["alerts"]:
            states.setdefault(alert["labels"]["alertname"], set()).add(alert["state"])
        return states
