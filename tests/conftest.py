"""Fixtures shared by all tests."""

import atexit
import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
from redis import Redis

from tests import scheduling, verl_environment
from tests.processes import start_redis
from tests.sandboxes import sandbox

# No test depends on how fast the machine is. The same examples each time; `make test-all` looks for
# others.
EXPLORE = "PLUMBLINE_TEST_EXPLORE"
hypothesis.settings.register_profile(
    "plumbline", deadline=None, derandomize=EXPLORE not in os.environ
)
hypothesis.settings.load_profile("plumbline")


# Four processes collect all tests, which takes a third less time so.
gc.set_threshold(50_000)
atexit.register(gc.freeze)

# Marks whose files `make` finds by the marks' names in them.
_LANES = ("alone", "compose", "verl")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public data files beside the checkout; skips the test where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public data at {folder}")
    return folder


@pytest.fixture(autouse=True)
def _empty_memory_filesystem() -> Iterator[None]:
    """``memory://`` lasts as long as the process: what a test left would be there for the next."""
    yield
    if memory := sys.modules.get("fsspec.implementations.memory"):
        memory.MemoryFileSystem.store.clear()
        memory.MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(autouse=True)
def _closed_indexes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the temporary indexes of ingesters that a test makes.

    Else the garbage collector finds them open in the middle of another test.
    """
    if (ingest := sys.modules.get("services.aggregator.ingest")) is None:
        yield
        return
    opened, open_database = [], ingest.open_database

    def remember(*arguments: Path | None) -> object:
        opened.append(open_database(*arguments))
        return opened[-1]

    monkeypatch.setattr(ingest, "open_database", remember)
    yield
    for database in opened:
        database.close()


@pytest.fixture(scope="session")
def verl_python() -> Path:
    """See :mod:`tests.verl_environment`."""
    return verl_environment.verl_python()


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """See :mod:`tests.verl_environment`."""
    return verl_environment.tiny_model()


@pytest.fixture
def open_files() -> Iterator[None]:
    """As many open files as the machine allows: in a shell it is often 1,024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a sandbox for runs of which nothing but their programs needs one."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url


class RedisServer:
    """A real redis-server over an append-only file."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            self.child, self.url = start_redis(
                folder / "data", folder / "redis.log", dict(environment), lock.fileno()
            )

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.child.process is not None
        self.child.process.kill()
        self.child.process.wait()

    def start_again(self) -> None:
        """Over the same file, at the same URL; it need not answer yet."""
        self.child.keep = ()
        self.child.start()

    def stop(self) -> None:
        self.child.stop(5.0)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of an empty database."""
    client = Redis.from_url(redis_server.url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server for a test that kills it."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write the seconds of each file to tests/durations.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # Else a test without this variable decides for all after it.
        tempfile.tempdir = os.environ["TMPDIR"]
        return
    if config.getoption("--record-durations"):
        config.pluginmanager.register(scheduling.DurationRecorder())
    _use_own_temporary_folder(config)


def _use_own_temporary_folder(config: pytest.Config) -> None:
    """Keep all that tests, and what they start, leave behind in one folder.

    It is removed if every test has passed.
    """
    folder = Path(tempfile.mkdtemp(prefix="pl-"))  # short, because of the paths of Unix sockets
    folder.chmod(0o755)  # programs of other users run below it
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = str(folder)
    if not config.option.basetemp:
        config.option.basetemp = folder / "t"
    config.stash[_FOLDER] = folder


_FOLDER = pytest.StashKey[Path]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if passed and (folder := session.config.stash.get(_FOLDER, None)):
        session.config.add_cleanup(lambda: _remove(folder))


def _remove(folder: Path) -> None:
    """Remove a folder into which a server that was killed with its test may still be writing."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: object
) -> scheduling.UnitScheduling | None:
    return (
        scheduling.UnitScheduling(config, log) if config.getoption("dist") == "loadfile" else None
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first where several processes share them, else cheap tests first."""
    _check_that_make_finds(items)
    if hasattr(config, "workerinput"):
        scheduling.longest_first(items)
        return
    dear = ("verl", "compose", "e2e", "hostile", "browser")
    items.sort(key=lambda item: [bool(item.get_closest_marker(mark)) for mark in dear])


def _check_that_make_finds(items: list[pytest.Item]) -> None:
    """`make test` finds the files of some marks by the marks' names in them."""
    texts: dict[Path, str] = {}
    for item in items:
        for mark in _LANES:
            if item.get_closest_marker(mark):
                text = texts.setdefault(item.path, item.path.read_text(encoding="utf-8"))
                if f"mark.{mark}" not in text:
                    raise pytest.UsageError(
                        f"{item.nodeid} has the mark {mark}, which is not written in its file, so "
                        f"`make test` does not find it: write pytest.mark.{mark} there"
                    )
