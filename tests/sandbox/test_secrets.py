"""Programs see no secret of the services: neither in their environment nor in ``/proc``."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ServiceError
from tests.sandbox.conftest import unavailable
from tests.sandbox.installations import python_for
from tests.sandboxes import own_sandbox, rungs

SECRETS = {
    "PLUMBLINE_SANDBOX_TOKEN": "pLanted-sandbox-token",
    "REDIS_PASSWORD": "pLanted-redis-password",
    "OPENAI_API_KEY": "pLanted-openai-key",
    "SANDBOX_URLS": "http://u:pLanted-url-password@host",
}
LOOK = """
import glob, os
print(dict(os.environ))
for name in ('environ', 'cmdline'):
    for path in glob.glob('/proc/[0-9]*/' + name) + ['/proc/self/' + name]:
        try:
            print(open(path, 'rb').read())
        except OSError:
            pass
print('looked')
"""


@pytest.mark.parametrize("isolation", rungs("bwrap", "landlock", "none"))
def test_a_program_finds_no_secret(tmp_path: Path, isolation: str) -> None:
    if isolation == "none" and os.geteuid() != 0:
        pytest.skip("without isolation a program is the same user as the server")
    settings = {
        "PLUMBLINE_SANDBOX_ISOLATION": isolation,
        "PLUMBLINE_SANDBOX_PYTHON": str(python_for(isolation)),
        **SECRETS,
    }
    try:
        with own_sandbox(tmp_path, **settings) as url:
            assert _ask(f"{url}/readyz")["isolation"] == isolation
            answer = _ask(f"{url}/run_code", {"code": LOOK, "language": "python"})
    except ServiceError as error:  # the machine does not permit it, so the server does not start
        unavailable(isolation, error)
    said = answer["run_result"]["stdout"]
    assert "looked" in said
    assert "pLanted" not in said


def _ask(url: str, document: dict[str, str] | None = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    token = f"Bearer {SECRETS['PLUMBLINE_SANDBOX_TOKEN']}"
    headers = {"Content-Type": "application/json", "Authorization": token}
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)
