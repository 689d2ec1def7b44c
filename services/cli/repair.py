"""The command `plumb repair`: a damaged append-only file of an embedded stack."""

from typing import Annotated

import typer

from services.cli.embedded.append_only import repair as repair_file
from services.cli.embedded.stack import file_lock, state_folder
from shared.artifacts import OutputFolder
from shared.errors import OutputError


def repair(
    output: Annotated[str, typer.Argument(help="Output folder of a run with --embedded.")],
) -> None:
    """Cut an embedded run's append-only file of Redis before its damage; keep a copy."""
    folder = state_folder(OutputFolder(output))
    if not (folder / "redis").is_dir():
        raise OutputError(f"{folder} has no data of Redis: no run with --embedded was here")
    with file_lock(folder / "lock"):
        found = repair_file(folder / "redis", folder / "logs" / "redis.log")
    if found is None:
        print(f"Redis' files in {folder / 'redis'} are intact")
        return
    damage, kept = found
    if damage is None:
        print(f"the manifest names all files again; nothing is lost; as they were: {kept}")
        return
    lost = damage.size - damage.intact
    print(f"{damage}: the last {lost} bytes ({lost / damage.size:.1%}) were cut off")
    print(f"the files as they were: {kept}")
    print("lost are the latest writes; the run's command finds what is missing and makes it again")
