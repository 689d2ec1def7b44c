import io
from pathlib import Path

import pytest
from rich.console import Console

from services.cli.display import ProgressDisplay, print_summary
from services.cli.options import flags_as_overrides, with_method, with_model, with_name
from services.data.records import write_dataset
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.config_files import overridden_keys
from shared.errors import ConfigError
from shared.finished_run import FinishedRun
from shared.run_record import RunRecord, WandbRecord, make_plan
from shared.statuses import FinalStatus
from tests.cli.commands import plumb
from tests.shared.ledgers import problem


def test_a_method_that_does_not_go_with_the_rest_is_refused() -> None:
    overrides = ["judge.method=submit", "judge.language=php"]
    with pytest.raises(ConfigError, match="method batch: judge") as caught:
        with_method(load_config(None, overrides), "batch")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "overrides", "name", "folder"),
    [
        ("{}", [], "phase0", "outputs/phase0"),
        ("{}", ["output.dir=runs/mine/"], "mine", "runs/mine/"),
        ("{}", ["output.dir=s3://key:secret@bucket"], "***@bucket", "s3://key:secret@bucket"),
        ("{}", ["output.dir=."], "phase0", "."),
        ("output: {dir: out/base}", [], "base", "out/base"),
        ("output: {dir: out/base}", ["output.dir=other"], "other", "other"),
        ("output: {dir: out/base}", ["run.name=mine"], "mine", "outputs/mine"),
        ("run: {name: base}", ["output.dir=other"], "other", "other"),
        ("run: {name: base}", ["output.dir=other", "run.name=mine"], "mine", "other"),
        ("{run: {name: base}, output: {dir: out}}", [], "base", "out"),
    ],
)
def test_a_run_has_its_own_name_or_its_folders(
    file: str, overrides: list[str], name: str, folder: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(file)
    config = with_name(load_config(path, overrides), overridden_keys(overrides))
    assert (config.name, config.output_dir) == (name, folder)


def test_a_resumed_run_says_so_and_does_not_count_old_verdicts_as_speed() -> None:
    out = io.StringIO()
    plan = make_plan([problem()], lambda _problem: range(100))
    samples = plan.samples()
    with ProgressDisplay(Console(file=out, width=200), "loaded") as progress:
        progress.planned(plan)
        progress.resumed(samples[:58], dict.fromkeys(samples[:15], FinalStatus.SUCCESS))
    lines = out.getvalue().splitlines()
    assert lines[0] == "resuming: 58 loaded, 15 judged"
    assert "loaded 58/100, judged 15/100, accepted 15" in lines[-1]
    assert "samples/s" not in lines[-1]


def test_the_summary_says_where_weights_and_biases_has_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = WandbRecord(mode="offline", sync="wandb sync /o", online_error="HTTP 500")
    record = RunRecord(run="r", name="n", output="o", wandb=wandb)
    print_summary(FinishedRun(OutputFolder(str(tmp_path)), record, {"d": {}}))
    assert [line for line in capsys.readouterr().out.splitlines() if "Biases" in line] == [
        "Weights & Biases: not uploaded; to upload: wandb sync /o",
        "Weights & Biases: HTTP 500",
    ]


# Flags for keys

SIZE = ("actor_rollout_ref.rollout.tensor_model_parallel_size", 4)


@pytest.mark.parametrize("key", [SIZE[0], "rollout.tensor_model_parallel_size", f"+{SIZE[0]}"])
def test_a_flag_and_an_override_of_the_same_key(key: str) -> None:
    """Whatever the name under which verl's users know the key."""
    flags = {"--tensor-parallel-size": SIZE}
    with pytest.raises(ConfigError) as caught:
        flags_as_overrides(flags, [f"{key}=2"])
    assert str(caught.value) == (
        f"--tensor-parallel-size 4 and {key}=2 contradict each other; keep one of them"
    )
    assert flags_as_overrides(flags, [f"{key}=4"])


def test_the_model_is_what_replicas_load_or_what_others_are_asked_for() -> None:
    asked = with_model(load_config(None), "org/m", [])
    assert (asked.generation.model, asked.actor_rollout_ref.model.path) == ("org/m", "")
    given = ["generation.backend=verl", "actor_rollout_ref.model.path=old"]
    started = load_config(None, [*given, "generation.model=old"])
    loaded = with_model(started, "/models/new", given[:1])
    assert loaded.actor_rollout_ref.model.path == "/models/new"
    assert loaded.generation.model == ""  # the name follows from the path
    named = with_model(started, "/models/new", ["generation.model=old"])
    assert named.generation.model == "old"
    with pytest.raises(ConfigError, match="--model /models/new and actor_rollout_ref"):
        with_model(started, "/models/new", given)


def test_flags_of_scripts_are_taken_with_either_spelling(tmp_path: Path) -> None:
    script = ["--n-gpus", "8", "--n_gpus", "8", "--output_dir", "a", "--output-dir", "b"]
    assert "no data sets" in plumb("run", *script, folder=tmp_path).line
    wrong = plumb("judge", "--output_dir", "a", "--output", "b", folder=tmp_path)
    assert (
        wrong.line == "plumb: --output-dir a and --output b contradict each other; keep one of them"
    )


def test_the_plans_options_take_prepared_data_and_start_verl(tmp_path: Path) -> None:
    (tmp_path / "data" / "eval").mkdir(parents=True)
    write_dataset(str(tmp_path / "data/eval/humaneval.parquet"), [problem(dataset="humaneval")])
    own = f"generation.verl.python={tmp_path}/none/python"
    sandbox, server = ("--sandbox_url", "http://localhost:2"), ("--base-url", "http://localhost:1")
    for options, reason in (
        (("sglang",), 'pip install "verl[sglang]'),
        (("vllm", own), f"{tmp_path}/none/python"),
        (("vllm", own, *sandbox), "http://localhost:2 is not reachable"),
        (("vllm", *sandbox, *server), "http://localhost:1/v1/models"),
    ):
        done = plumb("run", "--model", "org/m", "--rollout", *options, folder=tmp_path)
        assert (done.code, reason in done.stderr) == (2, True), (options, done)


def test_a_configuration_of_main_eval_is_for_plumb_judge(tmp_path: Path) -> None:
    config = tmp_path / "evaluation.yaml"
    config.write_text("data: {path: out.parquet, response_key: responses}")
    done = plumb("run", "--config", str(config), folder=tmp_path)
    assert "data.completions names completions to judge (out.parquet)" in done.line
    assert "plumb judge" in done.line
    judged = plumb("judge", "--config", str(config), folder=tmp_path)
    assert judged.line.startswith("plumb: out.parquet: no such file")
