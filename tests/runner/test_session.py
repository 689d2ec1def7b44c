import threading
from pathlib import Path

import pytest
from redis import Redis

from services.runner.session import ARTIFACTS, RunIdentity, Session, claim_output, identify
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.canaries import REJUDGE
from shared.config import Config, load_config
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger, list_runs
from shared.run_record import (
    VERSION,
    Provenance,
    RunMeta,
    RunPlan,
    RunRecord,
    RunState,
    SandboxFacts,
    make_plan,
)
from shared.schemas import SampleId
from tests.shared.ledgers import generation, problem

PROBLEMS = [problem("p1"), problem("p2")]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))


def run_id(folder: OutputFolder, *overrides: str, plan: RunPlan = PLAN, source: str = "") -> str:
    return identify(load_config(None, overrides), plan, folder, source).run


@pytest.fixture
def folder(tmp_path: Path) -> OutputFolder:
    return OutputFolder(str(tmp_path / "out"))


# Identity


def test_the_same_command_is_the_same_run(
    folder: OutputFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_id(folder)
    assert run.startswith("phase0-")
    assert run == run_id(folder)
    assert run == run_id(folder, "judge.workers=7", "sandbox.url=http://x")
    assert run == run_id(folder, "actor_rollout_ref.rollout.gpu_memory_utilization=0.5")
    monkeypatch.chdir(tmp_path)
    assert run == run_id(OutputFolder("out"))
    assert run == run_id(OutputFolder(f"file://{tmp_path}/out"))


def test_another_command_is_another_run(folder: OutputFolder, tmp_path: Path) -> None:
    more = make_plan(PROBLEMS, lambda _problem: range(2))
    runs = {
        run_id(folder),
        run_id(folder, "actor_rollout_ref.rollout.temperature=1"),
        run_id(folder, "sandbox.timeout=1"),
        run_id(folder, "run.name=other"),
        run_id(folder, plan=more),
        run_id(folder, source="recorded"),
        run_id(OutputFolder(str(tmp_path / "elsewhere"))),
        run_id(OutputFolder("memory://out")),
    }
    assert len(runs) == 8


# The output folder


def write_record(folder: OutputFolder, identity: RunIdentity) -> None:
    meta = RunMeta(
        fingerprint=identity.fingerprint, protocol=identity.protocol, source=identity.source
    )
    record = RunRecord.of(identity.run, meta, identity.plan.datasets)
    folder.write_json(artifacts.RUN, record.model_dump(mode="json"))


def test_an_empty_folder_and_ones_own_are_let_in(folder: OutputFolder) -> None:
    identity = identify(Config(), PLAN, folder, "")
    claim_output(folder, identity, force=False)
    assert not Path(folder.path).exists()
    folder.write_json("something else", {})
    claim_output(folder, identity, force=False)
    write_record(folder, identity)
    folder.write_json(artifacts.SUMMARY, {})
    assert claim_output(folder, identity, force=False).run == identity.run


def test_a_run_keeps_its_id_where_it_is_renamed_or_moved(
    folder: OutputFolder, tmp_path: Path
) -> None:
    identity = identify(Config(), PLAN, folder, "")
    write_record(folder, identity)
    renamed = identify(load_config(None, ["run.name=other"]), PLAN, folder, "")
    assert renamed.run != identity.run
    assert claim_output(folder, renamed, force=False).run == identity.run
    elsewhere = OutputFolder(str(tmp_path / "elsewhere"))
    write_record(elsewhere, identity)
    moved = claim_output(elsewhere, identify(Config(), PLAN, elsewhere, ""), force=False)
    assert (moved.run, moved.output) == (identity.run, elsewhere.path)


OTHER_PLAN = make_plan([problem("p1"), problem("p2", prompt="new")], lambda _problem: range(1))


@pytest.mark.parametrize(
    ("overrides", "plan", "source", "named"),
    [
        (["actor_rollout_ref.rollout.temperature=0.5"], PLAN, "",
         r"actor_rollout_ref\.rollout\.temperature \(0\.0 there, 0\.5 here\)"),
        (["data.templates.d1='Do {prompt}'"], PLAN, "", r"data\.templates\.d1"),
        (["judge.checker=exact"], PLAN, "", r"judge\.checker \(not set there, \"exact\" here\)"),
        (["judge.max_timeouts=null"], PLAN, "", r"judge\.max_timeouts \(4 there, not set here\)"),
        (["judge.datasets.d1.max_timeouts=1"], PLAN, "", r"judge\.datasets\.d1\.max_timeouts"),
        (["run.seed=2", "sandbox.timeout=3"], PLAN, "", r"sandbox\.timeout.*run\.seed"),
        ([], OTHER_PLAN, "", r"content of the data set d1 \(SHA-256 \w{8} there, \w{8} here\)"),
        ([], make_plan([problem("q", "d2")], lambda _: range(1)), "", r"data sets \(d1 there, d2"),
        ([], make_plan(PROBLEMS, lambda _: range(1, 2)), "", "other samples"),
        ([], PLAN, "theirs", "source of the completions"),
    ],
)  # fmt: skip
def test_what_another_measurement_differs_in_is_named(
    folder: OutputFolder, overrides: list[str], plan: RunPlan, source: str, named: str
) -> None:
    write_record(folder, identify(Config(), PLAN, folder, "mine" if source else ""))
    other = identify(load_config(None, overrides), plan, folder, source)
    with pytest.raises(OutputError, match=named) as caught:
        claim_output(folder, other, force=False)
    assert "--force" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_torn_run_json_is_kept(folder: OutputFolder) -> None:
    Path(folder.path).mkdir()
    Path(folder.path, artifacts.RUN).write_text('{"fing')
    with pytest.raises(OutputError, match="cannot be read"):
        claim_output(folder, identify(Config(), PLAN, folder, ""), force=False)


def test_force_lets_a_run_in_and_leaves_the_results_until_it_begins(folder: OutputFolder) -> None:
    """What has to be there for a run may be missing still; the old results are not lost for it."""
    for name in ARTIFACTS:
        folder.write_json(name, {"fingerprint": "other"})
    claim_output(folder, identify(Config(), PLAN, folder, ""), force=True)
    assert sorted(path.name for path in Path(folder.path).iterdir()) == sorted(ARTIFACTS)


# The session


def enter(
    redis: Redis, folder: OutputFolder, force: bool = False, config: Config | None = None
) -> Session:
    config = config or Config()
    session = Session(redis, identify(config, PLAN, folder, ""))
    session.enter(config, PROBLEMS, folder, force=force, provenance=Provenance(model="m"))
    return session


def test_a_run_is_entered(
    redis: Redis, folder: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_IMAGES", "registry/*:0.1.0")
    session = enter(redis, folder)
    identity = identify(Config(), PLAN, folder, "")
    assert list_runs(redis) == [identity.run]
    meta = session.ledger.meta()
    assert meta.fingerprint == identity.fingerprint
    assert meta.output == folder.path
    assert session.ledger.plan() == PLAN
    assert meta.config == Config()
    assert (meta.sessions, meta.model, meta.state) == (1, "m", RunState.RUNNING)
    assert {"rq", "python", "platform"} <= meta.versions.keys()
    assert meta.versions["images"] == "registry/*:0.1.0"
    assert session.ledger.state() is RunState.RUNNING
    assert session.ledger.problem("d1", "p2") == PROBLEMS[1]
    run = folder.read_json(artifacts.RUN)
    assert run is not None
    assert (run["complete"], run["fingerprint"]) == (False, identity.fingerprint)
    assert (run["version"], run["state"], run["samples"]) == (VERSION, "running", 2)
    claim_output(folder, identity, force=False)


def test_a_second_session_goes_on(redis: Redis, folder: OutputFolder) -> None:
    first = enter(redis, folder)
    started = first.ledger.meta().started_at
    first.ledger.record(generation())
    first.leave()
    second = enter(redis, folder, config=load_config(None, ["judge.max_attempts=9"]))
    meta = second.ledger.meta()
    assert (meta.sessions, meta.started_at) == (2, started)
    assert meta.config.judge.max_attempts == 9
    assert second.ledger.completed().keys() == {SampleId("d1", "p1")}


def enter_with(redis: Redis, folder: OutputFolder, force: bool = False, **facts: object) -> Session:
    session = Session(redis, identify(Config(), PLAN, folder, ""))
    try:
        session.enter(
            Config(), PROBLEMS, folder, force=force, provenance=Provenance.model_validate(facts)
        )
    finally:
        session.leave()
    return session


def test_another_model_is_refused_in_the_same_run(redis: Redis, folder: OutputFolder) -> None:
    first = enter_with(redis, folder, model="m")
    with pytest.raises(OutputError, match=r"'m'.*'other'.*--force") as caught:
        enter_with(redis, folder, model="other")
    assert folder.path in str(caught.value)
    assert first.ledger.meta().model == "m"
    enter_with(redis, folder, force=True, model="other")


def test_other_packages_are_refused_in_the_same_run(redis: Redis, folder: OutputFolder) -> None:
    def sandbox(**packages: str) -> SandboxFacts:
        programs = {"kind": "plumbline", "python": "3.11.7", "packages": packages}
        return SandboxFacts.model_validate({"environment": programs})

    enter_with(redis, folder, sandbox=sandbox(numpy="2.4.6"))
    with pytest.raises(OutputError, match=r"no sympy there, sympy 1\.14 here.*--force") as caught:
        enter_with(redis, folder, sandbox=sandbox(numpy="2.4.6", sympy="1.14"))
    assert str(caught.value).count(REJUDGE) == 1
    enter_with(redis, folder, sandbox=sandbox(numpy="2.4.6"))
    enter_with(redis, folder, sandbox=SandboxFacts())  # a sandbox elsewhere, which tells nothing


def test_another_chat_template_is_refused_in_the_same_run(
    redis: Redis, folder: OutputFolder
) -> None:
    enter_with(redis, folder, generator={"chat_template_sha256": "aa", "gpu": "H100"})
    enter_with(redis, folder, generator={"chat_template_sha256": "aa", "gpu": "H200"})
    with pytest.raises(OutputError, match="chat template aa, the generator has bb"):
        enter_with(redis, folder, generator={"chat_template_sha256": "bb"})
    both = {"http://a/v1": {"chat_template_sha256": "aa"}}
    enter_with(redis, folder, generator=both | {"http://b/v1": None})
    with pytest.raises(OutputError, match="chat template aa, the generator has aa and bb"):
        other = {"http://b/v1": {"chat_template_sha256": "bb"}}
        enter_with(redis, folder, generator=both | other)


def test_a_server_that_says_nothing_leaves_what_is_known(
    redis: Redis, folder: OutputFolder
) -> None:
    info = {"chat_template_sha256": "aa"}
    assert enter_with(redis, folder, generator=None).ledger.meta().generator is None
    assert enter_with(redis, folder, generator=info).ledger.meta().generator == info
    assert enter_with(redis, folder, generator=None).ledger.meta().generator == info


def test_with_force_the_ledger_is_empty(redis: Redis, folder: OutputFolder) -> None:
    first = enter(redis, folder)
    first.ledger.record(generation())
    first.leave()
    second = enter(redis, folder, force=True)
    assert second.ledger.completed() == {}
    assert second.ledger.queue.get_job_ids() == []
    assert second.ledger.meta().sessions == 1
    assert second.ledger.problem("d1", "p1") == PROBLEMS[0]


def test_only_one_session_at_a_time(
    redis: Redis, folder: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = enter(redis, folder)
    monkeypatch.setattr("services.runner.session._LOCK_WAIT", 0.0)
    with pytest.raises(ServiceError, match="another runner is working") as caught:
        enter(redis, folder, force=True)
    assert first.ledger.run in str(caught.value)
    assert first.ledger.meta().sessions == 1
    first.leave()
    assert enter(redis, folder).ledger.meta().sessions == 2


def test_a_session_waits_for_a_killed_runners_lock(redis: Redis, folder: OutputFolder) -> None:
    ledger = Ledger(redis, identify(Config(), PLAN, folder, "").run)
    ledger.lock("killed", 60)
    entered = threading.Event()

    def wait() -> None:
        enter(redis, folder)
        entered.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    ledger.unlock("killed")
    assert entered.wait(60)
    waiting.join()


def test_counters_of_a_run_that_redis_lost_are_no_run(redis: Redis, folder: OutputFolder) -> None:
    session = enter(redis, folder)
    redis.delete(*redis.keys("*:meta"))
    session.tick()
    session.leave()
    resumed = claim_output(folder, identify(Config(), PLAN, folder, ""), force=False)
    with pytest.raises(OutputError, match="which Redis does not know"):
        Session(redis, resumed).enter(
            Config(), PROBLEMS, folder, force=False, provenance=Provenance(model="m")
        )


def test_a_tick_counts_time_and_keeps_the_lock(redis: Redis, folder: OutputFolder) -> None:
    session = enter(redis, folder)
    (lock,) = redis.keys("*lock*")
    redis.pexpire(lock, 1_000)
    session.tick()
    session.tick()
    assert redis.pttl(lock) > 1_000
    assert session.ledger.meta().active_seconds > 0
