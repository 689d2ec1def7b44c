"""The command `plumb repair`: a damaged append-only file of an embedded stack."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from services.cli.embedded.append_only import repair as repair_file
from services.cli.embedded.services import base_environment, start_redis
from services.cli.embedded.stack import file_lock, state_folder
from services.cli.embedded.supervisor import GRACE_SECONDS
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.ledger import Ledger, connect, list_runs


def repair(
    output: Annotated[str, typer.Argument(help="Output folder of a run with --embedded.")],
) -> None:
    """Repair an embedded run's Redis file, and remove damaged records; keep a copy."""
    folder = state_folder(OutputFolder(output))
    if not (folder / "redis").is_dir():
        raise OutputError(f"{folder} has no data of Redis: no run with --embedded was here")
    with file_lock(folder / "lock") as lock:
        found = repair_file(folder / "redis", folder / "logs" / "redis.log")
        removed = _remove_damaged(folder, lock) if found is None else []
    if found is None:
        print(f"Redis' files in {folder / 'redis'} are intact")
        for sample in removed:
            print(f"a damaged record of {sample} was removed; the run makes it again")
        return
    damage, kept = found
    if damage is None:
        print(f"the manifest names all files again; nothing is lost; as they were: {kept}")
        return
    lost = damage.size - damage.intact
    print(f"{damage}: the last {lost} bytes ({lost / damage.size:.1%}) were cut off")
    print(f"the files as they were: {kept}")
    print("lost are the latest writes; the run's command finds what is missing and makes it again")


def _remove_damaged(folder: Path, lock: int) -> list[str]:
    """Remove samples and problems whose records are damaged; returns their names."""
    log = folder / "logs" / "redis.log"
    log.parent.mkdir(exist_ok=True)
    child, url = start_redis(folder / "redis", log, base_environment(), lock)
    try:
        with closing(connect(url)) as redis:
            return [one for run in list_runs(redis) for one in Ledger(redis, run).remove_damaged()]
    finally:
        child.stop(GRACE_SECONDS)
