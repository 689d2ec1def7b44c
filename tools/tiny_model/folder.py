"""Atomic replacement of the output folder, which must not contain other data."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from shared.errors import OutputError

MARKER_FILE = "plumbline_model.json"


def check_output(target: Path, force: bool) -> None:
    """Refuse to replace a folder that this program did not create.

    Raises:
        OutputError: ``target`` is a file, or a folder with other content and not ``force``.
    """
    try:
        if not target.exists() or (target / MARKER_FILE).is_file() or not any(target.iterdir()):
            return
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror}; name a folder") from None
    if not force:
        raise OutputError(
            f"{target} contains something other than a model of this program; name another folder, "
            "or replace it with --force"
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target`` that replaces it when the block ends.

    If the block raises, it is removed and ``target`` stays unchanged.

    Raises:
        OutputError: A file or folder cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    except OSError as error:
        raise OutputError(f"{target}: cannot be made ({error.strerror}); check it") from None
    try:
        made = work / "made"
        made.mkdir()
        yield made
        for file in made.rglob("*"):  # safetensors creates files without access for others
            file.chmod(0o755 if file.is_dir() else 0o644)
        # The old folder is moved into the temporary one and removed with it.
        replaced = work / "replaced"
        if target.exists():
            target.rename(replaced)
        try:
            made.rename(target)
        except OSError:
            if replaced.exists():
                replaced.rename(target)
            raise
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error})") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
