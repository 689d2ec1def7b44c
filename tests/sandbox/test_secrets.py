"""Programs see no secret of the services: neither in their environment nor in ``/proc``."""

import os
from pathlib import Path

import pytest
from aiohttp import ClientSession

from shared.errors import ServiceError
from tests.sandbox.conftest import Sandbox, unavailable
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
async def test_a_program_finds_no_secret(tmp_path: Path, isolation: str) -> None:
    if isolation == "none" and os.geteuid() != 0:
        pytest.skip("without isolation a program is the same user as the server")
    settings = {
        "PLUMBLINE_SANDBOX_ISOLATION": isolation,
        "PLUMBLINE_SANDBOX_PYTHON": str(python_for(isolation)),
        **SECRETS,
    }
    token = {"Authorization": f"Bearer {SECRETS['PLUMBLINE_SANDBOX_TOKEN']}"}
    try:
        with own_sandbox(tmp_path, **settings) as url:
            async with ClientSession(headers=token) as session:
                sandbox = Sandbox(session, url)
                assert (await sandbox.ready())["isolation"] == isolation
                printed = (await sandbox.run(LOOK))["run_result"]["stdout"]
    except ServiceError as error:  # the machine does not permit it, so the server does not start
        unavailable(isolation, error)
    assert "looked" in printed
    assert "pLanted" not in printed
