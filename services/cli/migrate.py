"""`plumb migrate`: the versions of the runs in Redis, and their migration."""

from typing import Annotated

import typer
from rich.text import Text

from services.cli.display import printable, stdout_console
from services.cli.layout import print_line
from shared.errors import FindingsError
from shared.ledger import Ledger, connect, list_runs
from shared.ledger.version import OtherVersionError, claim_ledger
from shared.run_record import VERSION
from shared.service.settings import RedisSettings, load_settings
from shared.versions import release


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a run would change.")
    ] = False,
) -> None:
    """Bring the runs in Redis to this release's version, before the next upgrade."""
    console = stdout_console()
    redis = connect(load_settings(RedisSettings).redis_url)
    print_line(
        console,
        Text(f"Plumbline {release()} writes version {VERSION} and reads {VERSION - 1} too"),
    )
    changed, refused = 0, 0
    if not check:
        claim_ledger(redis)
    for run in list_runs(redis):
        ledger = Ledger(redis, run)
        try:
            before = ledger.version() if check else ledger.migrate()
        except OtherVersionError as error:
            refused += 1
            print_line(console, Text(printable(str(error)), style="yellow"))
            continue
        if before is not None:
            changed += 1
            done = "would get" if check else "got"
            text = f"{run}: {done} the number {VERSION}; it had version {before}"
            print_line(console, Text(printable(text)))
    print_line(console, Text(f"{changed} runs {'to change' if check else 'changed'}"))
    if refused or (check and changed):
        raise FindingsError(
            f"{refused} runs that this release does not read, {changed if check else 0} to change"
        )
