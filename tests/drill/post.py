"""Client of the reward service: posts standard input to the service in the first argument."""

import sys
import urllib.request


def main() -> None:
    request = urllib.request.Request(
        f"{sys.argv[1]}/v1/score",
        data=sys.stdin.buffer.read(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
