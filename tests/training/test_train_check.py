"""`plumb train-check`: each mistake and difference is found, and a right config has none."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from pydantic import JsonValue
from typer.testing import CliRunner

from services.cli.commands import data_app
from services.cli.train_check import train_check
from shared.canaries import REJUDGE
from shared.config import RULES, Config, load_config
from shared.datasets import read_datasets
from shared.errors import FindingsError, PlumblineError, ServiceError
from shared.prompts import prompt_facts
from shared.run_record import RunMeta, RunRecord, make_plan
from tests.cli.commands import ROOT, answering

MODEL = "org/model"
CONFIG = ROOT / "configs/demo.yaml"
BASELINE = [f"actor_rollout_ref.model.path={MODEL}", "actor_rollout_ref.rollout.n=1"]
ROLLOUT = "actor_rollout_ref.rollout"

# The part of verl's configuration that is looked at, as its ppo_trainer and a right recipe have it.
TRAINER: dict[str, Any] = yaml.safe_load("""
actor_rollout_ref:
  model: {path: org/model, lora_rank: 0, custom_chat_template: null}
  rollout:
    {temperature: 1.0, top_p: 1.0, top_k: -1, n: 8, seed: 0, load_format: dummy,
     prompt_length: "${oc.select:data.max_prompt_length,512}",
     response_length: "${oc.select:data.max_response_length,512}",
     val_kwargs: {temperature: 0, top_p: 1.0, top_k: 0, n: 1, do_sample: false},
     agent: {num_workers: 4, default_agent_loop: single_turn_agent},
     multi_turn: {enable: false, tool_config_path: null, function_tool_path: null,
                  max_tool_response_length: 256}}
algorithm: {adv_estimator: grpo}
data:
  {prompt_key: prompt, max_prompt_length: 4096, max_response_length: 2048,
   filter_overlong_prompts: true, apply_chat_template_kwargs: {}, tokenizer: null, seed: 0,
   val_max_samples: -1}
reward:
  num_workers: 2
  custom_reward_function: {path: "pkg://plumbline_reward", name: compute_score}
  reward_manager: {name: naive}
  sandbox_fusion: {url: null}
custom_reward_function: {path: null, name: null}
reward_model: {enable: null, reward_manager: null, num_workers: null}
sandbox_fusion: {url: null, max_concurrent: null}
transfer_queue: {backend: {SimpleStorage: {num_data_storage_units: 2}}}
trainer: {nnodes: 1, n_gpus_per_node: 2, val_before_train: true, test_freq: 10, save_freq: 20}
ray_kwargs: {ray_init: {num_cpus: 16}}
""")


class Desk:
    """A run, exported data of two other sets, and the config of a trainer."""

    def __init__(self, folder: Path, exported: Path) -> None:
        self.folder = folder
        config = load_config(CONFIG, BASELINE)
        problems = read_datasets([str(ROOT / "demo/data/humaneval.parquet")])
        facts = prompt_facts(problems, config)
        meta = RunMeta(
            name="baseline",
            config=config,
            protocol=config.protocol(),
            model=MODEL,
            prompts=facts.prompts,
        )
        plan = make_plan(problems, lambda _problem: range(1))
        record = RunRecord.of("baseline-1", meta, plan.datasets)
        self.run = folder / "run"
        self.run.mkdir()
        (self.run / "run.json").write_text(json.dumps(record.document()))
        (self.run / "phase0_summary.json").write_text("{}")
        shutil.copytree(exported, folder / "rl")
        self.trainer = copy.deepcopy(TRAINER)
        self.set("data.train_files", [str(folder / "rl" / "train.parquet")])
        self.set("data.val_files", str(folder / "rl" / "validation.parquet"))

    def set(self, path: str, value: Any) -> None:
        *parents, leaf = path.split(".")
        section = self.trainer
        for part in parents:
            section = section[part]
        section[leaf] = value

    def check(self, *, data: bool = True, reward: str | None = None) -> dict[str, dict[str, Any]]:
        """The findings by what they are about."""
        config, findings = self.folder / "config.yaml", self.folder / "findings.json"
        config.write_text(yaml.safe_dump(self.trainer))
        data_folders = [str(ROOT / "demo/data")] if data else None
        try:
            train_check(str(config), str(self.run), data_folders, reward, False, findings)
            code = 0
        except FindingsError as error:
            code = error.exit_code
        self.findings = json.loads(findings.read_text())["findings"]
        assert code == any(finding["kind"] != "expected" for finding in self.findings)
        return {finding["subject"]: finding for finding in self.findings}

    def weighty(self, **options: Any) -> dict[str, str]:
        """Mistakes and differences only: what about, and which of the two."""
        findings = self.check(**options)
        return {
            name: finding["kind"]
            for name, finding in findings.items()
            if finding["kind"] != "expected"
        }


def export(folder: Path, *options: str) -> None:
    demo = ROOT / "demo/data"
    arguments = [
        *("export", "--config", str(CONFIG), "--output", str(folder)),
        *("--train", str(demo / "mbpp_reg.parquet"), "--allow-eval", "--force"),
        *("--validation", str(demo / "humaneval.parquet"), "--allow-unlocked", "data.lock=null"),
        *options,
    ]
    result = CliRunner().invoke(data_app, arguments)
    assert result.exit_code == 0, result.exception


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "rl"
    export(folder)
    return folder


@pytest.fixture
def desk(tmp_path: Path, exported: Path) -> Desk:
    return Desk(tmp_path, exported)


def test_a_right_config_has_neither_mistake_nor_difference(desk: Desk) -> None:
    findings = desk.check()
    assert {finding["kind"] for finding in findings.values()} == {"expected"}
    assert findings[f"{ROLLOUT}.temperature"]["trainer"] == 1.0
    assert findings[f"{ROLLOUT}.temperature"]["run"] == 0.0


WRONG_LEAVES: list[tuple[str, object, str | None, str]] = [
    ("actor_rollout_ref.model.path", "org/other", None, "difference"),
    ("actor_rollout_ref.model.custom_chat_template", "{{ x }}", None, "difference"),
    ("data.apply_chat_template_kwargs", {"enable_thinking": False}, None, "difference"),
    ("data.tokenizer", "org/other", None, "difference"),
    (f"{ROLLOUT}.val_kwargs.temperature", 0.6, None, "difference"),
    (f"{ROLLOUT}.val_kwargs.top_p", 0.9, None, "difference"),
    (f"{ROLLOUT}.val_kwargs.top_k", 20, None, "difference"),
    (f"{ROLLOUT}.val_kwargs.n", 4, None, "difference"),
    ("data.max_prompt_length", 1024, None, "difference"),
    ("data.max_response_length", 1024, None, "difference"),
    ("data.max_response_length", 1024, f"{ROLLOUT}.response_length", "difference"),
    ("data.val_max_samples", 100, None, "difference"),
    ("trainer.val_before_train", False, None, "difference"),
    ("trainer.test_freq", -1, None, "difference"),
    ("trainer.save_freq", -1, None, "mistake"),
    ("custom_reward_function.path", "pkg://plumbline_reward", None, "mistake"),
    ("sandbox_fusion.url", "http://localhost:8080/run_code", None, "mistake"),
    ("reward_model.reward_manager", "naive", None, "mistake"),
    ("reward.custom_reward_function.path", None, None, "mistake"),
    ("reward.custom_reward_function.path", "mine.py", None, "difference"),
    ("reward.custom_reward_function.name", "compute_score_sync", None, "mistake"),
    ("reward.reward_manager.name", "remote", None, "mistake"),
    ("reward.sandbox_fusion.url", "http://localhost:8080/run_code", None, "mistake"),
    ("data.filter_overlong_prompts", False, None, "mistake"),
    (f"{ROLLOUT}.n", 1, None, "mistake"),
    (f"{ROLLOUT}.temperature", 0.0, None, "mistake"),
    ("ray_kwargs.ray_init.num_cpus", 8, None, "mistake"),
    ("data.prompt_key", "question", None, "mistake"),
]


def test_one_leaf_that_is_wrong(desk: Desk) -> None:
    right = desk.trainer
    missed = []
    for path, value, subject, kind in WRONG_LEAVES:
        desk.trainer = copy.deepcopy(right)
        desk.set(path, value)
        findings = desk.weighty()
        if findings.get(subject or path) != kind:
            missed.append((path, value, findings))
    assert missed == []


def test_tools(desk: Desk) -> None:
    desk.set(f"{ROLLOUT}.agent.default_agent_loop", "tool_agent")
    turns = f"{ROLLOUT}.multi_turn"
    difference = {f"{ROLLOUT}.agent.default_agent_loop": "difference"}
    without = {f"{turns}.tool_config_path": "mistake"}
    short = {f"{turns}.max_tool_response_length": "mistake"}
    assert desk.weighty() == difference | without | short
    desk.set(f"{turns}.tool_config_path", "tools.yaml")
    desk.set(f"{turns}.max_tool_response_length", 4096)
    assert desk.weighty() == difference


def test_rows_of_a_tool_agent_need_tools(desk: Desk) -> None:
    export(desk.folder / "rl", "--agent-name", "tool_agent")
    subjects = list(desk.weighty())
    assert len(subjects) == 2
    assert all("parquet" in subject for subject in subjects)


def test_training_on_what_the_run_measured(desk: Desk) -> None:
    file = desk.folder / "rl" / "train.parquet"
    file.write_bytes((desk.folder / "rl" / "validation.parquet").read_bytes())
    desk.check()
    about = [finding for finding in desk.findings if finding["trainer"] == "humaneval"]
    assert [(entry["kind"], entry["subject"]) for entry in about] == [
        ("mistake", f"data.train_files {file}")
    ]


def test_another_prompt(desk: Desk) -> None:
    options = ("data.templates.humaneval=Solve {prompt}", "data.system_prompt=Think.")
    export(desk.folder / "rl", *options)
    validation = desk.folder / "rl" / "validation.parquet"
    train = desk.folder / "rl" / "train.parquet"
    assert desk.weighty() == {
        "template of humaneval": "difference",
        f"system prompt of {train}": "difference",
        f"system prompt of {validation}": "difference",
    }


def test_files_that_were_changed_or_come_from_elsewhere(desk: Desk) -> None:
    path = desk.folder / "rl" / "validation.parquet"
    pd.read_parquet(path).head(10).to_parquet(path)
    subject = f"data.val_files {path}"
    assert desk.weighty() == {subject: "mistake", "validation of humaneval": "difference"}
    (desk.folder / "rl" / "export.json").unlink()
    assert desk.weighty()[subject] == "difference"


def test_references_to_other_states_of_the_problems(desk: Desk) -> None:
    path = desk.folder / "rl" / "train.parquet"
    frame = pd.read_parquet(path)
    truth = "reward_model"
    frame[truth] = list(map(changed, frame[truth]))
    frame.to_parquet(path)
    findings = desk.check()
    assert "have changed since" in findings[f"data.train_files {path}"]["text"]
    findings = desk.check(data=False)
    assert "were not compared" in findings[f"data.train_files {path}"]["text"]
    frame[truth] = [
        {**row, "ground_truth": "plumbline:other/1#0123456789abcdef"} for row in frame[truth]
    ]
    frame.to_parquet(path)
    findings = desk.check()
    assert "not in the prepared data" in findings[f"data.train_files {path}"]["text"]


def changed(reward_model: dict[str, str]) -> dict[str, str]:
    reference = reward_model["ground_truth"]
    return {**reward_model, "ground_truth": f"{reference[:-4]}0000"}


def config_leaves(config: Config) -> dict[str, JsonValue]:
    """The leaves that a reward service reports."""
    leaves = config.protocol().leaves
    return {path: leaves[path] for path in leaves if path.startswith(("judge.", "sandbox."))}


def test_the_judge_of_a_reward_service(desk: Desk) -> None:
    judging = config_leaves(load_config(CONFIG, BASELINE))
    with answering({"/v1/info": (200, json.dumps({"protocol": judging}))}) as url:
        assert desk.weighty(reward=url) == {}
    other = judging | {"judge.method": "compute_score", "sandbox.timeout": 10.0}
    with answering({"/v1/info": (200, json.dumps({"protocol": other}))}) as url:
        findings = desk.check(reward=f"{url}/")
    assert findings["judge.method"]["trainer"] == "compute_score"
    assert findings["judge.method"]["run"] == "batch"
    assert findings["sandbox.timeout"]["kind"] == "difference"
    for answer in ("{}", "[]", "no"):
        with answering({"/v1/info": (200, answer)}) as url, pytest.raises(ServiceError):
            desk.check(reward=url)
    with (
        answering({}) as url,
        pytest.raises(ServiceError, match=r"answers 404 .*check the address"),
    ):
        desk.check(reward=url)
    with pytest.raises(ServiceError, match=r"does not answer \(.*Connection refused"):
        desk.check(reward=url)


def test_a_run_that_was_judged_otherwise(desk: Desk) -> None:
    path = desk.run / "run.json"
    document = json.loads(path.read_text())
    programs = {"kind": "plumbline", "python": "3.11.7", "packages": {}}
    document["sandbox"] = {"environment": programs}
    path.write_text(json.dumps(document))
    info = {"protocol": config_leaves(load_config(CONFIG, BASELINE)), "environment": "0" * 64}
    with answering({"/v1/info": (200, json.dumps(info))}) as url:
        findings = desk.check(reward=url)
    assert findings["the programs' Python and packages"]["text"] == REJUDGE
    with answering({"/v1/info": (200, json.dumps(info | {"environment": "an image"}))}) as url:
        assert "the programs' Python and packages" not in desk.check(reward=url)
    document["config"]["judge"]["rules"] = RULES + 1
    path.write_text(json.dumps(document))
    with answering({"/v1/info": (200, json.dumps({"protocol": info["protocol"]}))}) as url:
        others = [desk.check(reward=url), desk.check()]
    for findings in others:
        assert [finding for finding in findings.values() if finding["text"] == REJUDGE] == [
            findings["judge.rules"]
        ]
        assert (findings["judge.rules"]["trainer"], findings["judge.rules"]["run"]) == (
            RULES,
            RULES + 1,
        )


def test_what_cannot_be_compared_is_exit_code_2(desk: Desk) -> None:
    desk.set("data.train_files", "absent.parquet")
    with pytest.raises(PlumblineError) as caught:
        desk.check()
    assert caught.value.exit_code == 2
    assert "no such file" in str(caught.value)
