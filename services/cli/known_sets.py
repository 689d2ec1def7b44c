"""`plumb run --dataset`: public data sets by name, fetched and prepared at their first use.

Separate from the command, because the libraries that prepare data take seconds to import.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.cli.data_commands import DataProgress, print_audit
from services.cli.display import stdout_console
from services.data.config import PrepareConfig
from services.data.prepare.pipeline import prepare
from shared.config_files import load_document, validate_document
from shared.data_lock import LOCK_NAME, differences, load_lock
from shared.data_roles import DataRole
from shared.datasets import check_exists
from shared.errors import ConfigError, DataError

# In the working directory, as commands name them, or else in the checkout.
_PLACES = (Path("configs"), Path(__file__).resolve().parents[2] / "configs")
_CONFIGS = ("data.yaml", "data_stricter.yaml")


@dataclass(frozen=True, slots=True)
class KnownSet:
    """A prepared data set: its parquet file, and the lock that covers it."""

    file: str
    lock: str

    @property
    def intact(self) -> bool:
        """Whether the file is there and is the one that was prepared."""
        try:
            check_exists(self.file)
            check_exists(self.lock)
        except DataError:
            return False
        return not differences(load_lock(self.lock), [self.file])


def known_sets(names: Sequence[str], config: str | None) -> list[KnownSet]:
    """Find data sets by name; those that are not there are fetched and prepared.

    A set that ``plumb data prepare`` wrote is used. Otherwise each set has a folder of its own in
    ``sets``, beside the output folder of its config.

    Args:
        names: Names in ``config``, or in ``configs/data.yaml`` and ``configs/data_stricter.yaml``.
        config: A file as for ``plumb data prepare``, in place of those two.

    Raises:
        ConfigError: The config cannot be used, or a name is unknown or is that of training data.
        DataError: A source cannot be used.
    """
    found = {
        name: settings
        for settings in reversed(list(_settings(config)))
        for name in settings.datasets
    }
    for name in dict.fromkeys(names):
        settings = found.get(name)
        if settings is None or settings.datasets[name].role is DataRole.TRAIN:
            cause = "is training data" if settings else "is not a known data set"
            known = [one for one in found if found[one].datasets[one].role is not DataRole.TRAIN]
            raise ConfigError(
                f"--dataset {name} {cause}; choose from {', '.join(known)}, or name one of your "
                "own in a file for --data-config"
            )
    return [_found_or_prepared(name, found[name]) for name in dict.fromkeys(names)]


def _settings(config: str | None) -> Iterator[PrepareConfig]:
    if config is not None:
        yield validate_document(PrepareConfig, load_document(config, ()))
        return
    for name in _CONFIGS:
        file = next((place / name for place in _PLACES if (place / name).is_file()), None)
        if file is None:
            raise ConfigError(f"no configs/{name} here; name a file of sets with --data-config")
        yield validate_document(PrepareConfig, load_document(str(file), ()))


def _found_or_prepared(name: str, settings: PrepareConfig) -> KnownSet:
    parent = settings.output.rpartition("/")[0] or "."
    beside = f"{parent}/sets/{name}"
    manifests = f"{beside}/manifests"
    for folder, locks in ((settings.output, settings.manifests), (beside, manifests)):
        there = KnownSet(f"{folder}/{name}.parquet", f"{locks}/{LOCK_NAME}")
        if there.intact:
            return there
    only = {name: settings.datasets[name]}
    moved = {"datasets": only, "output": beside, "manifests": manifests}
    console = stdout_console()
    with DataProgress(console) as progress:
        prepared = prepare(settings.model_copy(update=moved), progress)
    print_audit(console, prepared)
    return there
