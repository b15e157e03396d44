"""One model over two processes of torchrun (gloo on a CPU), beside the same model in one process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from greedy import done
from network_guard import ASKED
from opened_models import copy_tokenizer
from tiny_models import tiny
from typer.testing import CliRunner

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import cli
from h2o_chat.models.resolve import find

pytestmark = pytest.mark.loopback
LAUNCH: list[str | Path] = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
]
POCKET = find("pocket").folder
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma3_text": {},  # layers with a window, and norms of each head
    "olmo2": {},  # all heads on every rank
    "gpt2": {},  # transformers has no plan for it
    "qwen2": {"num_key_value_heads": 1},
}
PROMPT = torch.randint(10, 4000, (70,), generator=torch.Generator().manual_seed(0)).tolist()
CALM = {"budget": 32}
ALWAYS = {"budget": 48, "policy": "h2o-paper"}  # evicts at every token
REFUSED = {"qwen2": "KV heads, 1,", "gpt2": "no plan", "native": "--engine native", "int8": "--quantize int8"}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    made = {"pocket": str(POCKET)}
    for family, sizes in FAMILIES.items():
        folder = tmp_path / family
        tiny(family, "eager", torch.float32, vocab_size=4096, eos_token_id=5, **sizes).save_pretrained(folder)
        copy_tokenizer(POCKET, folder)
        made[family] = str(folder)
    return made


def test_two_ranks_do_what_one_does(folders: dict[str, str], tmp_path: Path) -> None:
    """All in one test, since two ranks take seconds to start."""
    plain: dict[str, Any] = {"prompt": PROMPT, "tokens": 16, "settings": CALM}
    llama = plain | {"model": folders["llama"]}
    saved = llama | {"save": f"{tmp_path}/of one"}
    resumed = llama | {"prompt": [], "load": saved["save"]}
    tasks = {
        **{family: plain | {"model": folders[family], "protect": 5} for family in FAMILIES},
        "pocket": plain | {"model": folders["pocket"], "settings": ALWAYS},
        "saved": saved | {"save": f"{tmp_path}/of two"},
        "resumed": resumed,
        "native": llama | {"settings": CALM | {"engine": "native"}},
        "int8": llama | {"settings": CALM | {"quantize": "int8"}},
    }
    done(saved)
    two = _on_two_ranks(tasks, tmp_path / "tasks.json")
    for name in ("llama", "gemma3_text", "olmo2", "pocket"):
        alone = done(tasks[name])
        assert two[name].pop("lost") == pytest.approx(alone.pop("lost"), rel=1e-4), name
        assert two[name] == alone, name  # tokens, and what each KV head holds

    whole = done(llama | {"tokens": 32})
    moved = done(resumed | {"load": tasks["saved"]["save"]})
    assert two["saved"]["tokens"] + moved["tokens"] == whole["tokens"]
    assert two["resumed"]["tokens"] == whole["tokens"][16:]
    assert two["resumed"]["kept"] == moved["kept"] == whole["kept"]

    for name, why in REFUSED.items():
        assert why in two[name]["refused"]


@pytest.mark.sweep
def test_pocket_says_the_same_200_tokens(tmp_path: Path) -> None:
    task = {"model": str(POCKET), "prompt": PROMPT, "tokens": 200, "settings": ALWAYS}
    two = _on_two_ranks({"pocket": task}, tmp_path / "tasks.json")["pocket"]
    alone = done(task)
    assert (two["tokens"], two["kept"]) == (alone["tokens"], alone["kept"])


def _on_two_ranks(tasks: dict[str, dict[str, Any]], file: Path) -> dict[str, Any]:
    file.write_text(json.dumps(list(tasks.values())))
    script = Path(__file__).with_name("greedy.py")
    command = [*LAUNCH, script, file]
    ran = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(zip(tasks, json.loads(ran.stdout.splitlines()[-1]), strict=True))


SCRIPT = """
import json, os, sys
import torch
from h2o_chat import H2OCache
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

split = {"distributed_config": DistributedConfig(tp_plan="auto")} if "RANK" in os.environ else {}
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="h2o", **split)
ids, cache = torch.arange(10, 80)[None], H2OCache(32, model=model)
said = model.generate(ids, past_key_values=cache, max_new_tokens=40, do_sample=False)
if os.environ.get("RANK", "0") == "0":
    print(json.dumps([said.tolist(), cache.kept(0)[0, 0].sort().values.tolist()]))
"""


@pytest.mark.sweep
def test_a_script_of_ones_own_splits_the_cache_too(folders: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone, two = (
        subprocess.run([*how, script, folders["llama"]], env=_environment(), capture_output=True, timeout=240)
        for how in ([sys.executable], LAUNCH)
    )
    assert json.loads(two.stdout) == json.loads(alone.stdout)


def _environment() -> dict[str, str]:
    """Torchrun asks for the name of this machine, for its reports. To be refused that is no fault."""
    return {name: value for name, value in os.environ.items() if name != ASKED}


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A conversation of two ranks that takes minutes."""
    script = tmp_path / "script"
    script.write_text("\n---\n".join(f"Tell me something about town number {n}." for n in range(500)))
    command = [
        *LAUNCH,
        "-m",
        "h2o_chat",
        "run",
        "-m",
        "pocket",
        "--json",
        "--budget",
        "64",
        "--script",
        script,
    ]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=_environment()) as process:
        yield process
        if process.poll() is None:
            for left in (*psutil.Process(process.pid).children(recursive=True), process):
                left.kill()


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.sweep)])
def test_a_dead_rank_ends_the_run(rank: int, talk: subprocess.Popen[str]) -> None:
    assert talk.stdout
    while json.loads(talk.stdout.readline())["event"] != "token":
        pass
    ranks = {one.environ()["RANK"]: one for one in psutil.Process(talk.pid).children()}
    ranks[str(rank)].kill()
    killed = time.monotonic()
    said, complaint = talk.communicate(timeout=120)
    assert time.monotonic() - killed < 60
    assert talk.returncode == ExitCode.FAILED
    assert f"Rank {rank} of 2 has died." in complaint
    assert not any(one.is_running() for one in ranks.values())
    if rank:  # rank 0 tells its reader, too
        errors = [line for line in map(json.loads, said.splitlines()) if line["event"] == "error"]
        assert [error["code"] for error in errors] == ["engine"]


@pytest.mark.parametrize("command", [["serve"], ["lab", "eval", "ppl"], [], ["run", "--batch", __file__]])
def test_only_run_is_split(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "RANKS", 2)
    answer = CliRunner().invoke(cli.app, command)
    assert answer.exit_code == ExitCode.USAGE
    assert "torchrun" in answer.stderr
