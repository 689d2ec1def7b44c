"""Container health check: ``python -m shared.healthcheck`` requests /readyz, without curl."""

import http.client
import os
import sys

from shared.service.access import authorization, token_from

_TIMEOUT = 4.0
_SHOWN = 500
_WILDCARDS = ("", "0.0.0.0", "::")
# A service that requires a token tells the reason why it is not ready only to who has it.
_TOKENS = (
    "PLUMBLINE_AGGREGATOR_TOKEN",
    "PLUMBLINE_GENERATOR_API_KEY",
    "PLUMBLINE_REWARD_TOKEN",
    "PLUMBLINE_SANDBOX_TOKEN",
)


def main() -> int:
    """Print the body of /readyz; return 0 for status 200, else 1."""
    host = os.environ.get("HOST", "")
    port = int(os.environ["PORT"])
    connection = http.client.HTTPConnection(
        "127.0.0.1" if host in _WILDCARDS else host, port, timeout=_TIMEOUT
    )
    try:
        connection.request("GET", "/readyz", headers=_headers())
        answer = connection.getresponse()
        print(answer.read(_SHOWN).decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        print(f"port {port} does not answer: {error}")
        return 1
    return 0 if answer.status == http.HTTPStatus.OK else 1


def _headers() -> dict[str, str]:
    for name in _TOKENS:
        try:
            if token := token_from(os.environ, name):
                return authorization(token)
        except ValueError:  # the service reports it
            continue
    return {}


if __name__ == "__main__":
    sys.exit(main())
