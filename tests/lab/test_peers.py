"""The programs that `bench speed` compares with: who takes part, who does not and why.

Other programs are stood in for. `PEERS_FOLDER=FOLDER` also tries those that `tools/make_peers.py` made there.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file
from stand_in import PEER_MS, stand_ins, tiny_model
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.cli.cli import app
from h2o_chat.lab import idle, speed
from h2o_chat.lab.idle import wait_until_still
from h2o_chat.lab.peer import PROGRAMS, SCRIPTS, Conditions, Peer, offline, start
from h2o_chat.lab.racers import Wanted
from h2o_chat.lab.speed import Report, run_speed
from h2o_chat.lab.speed_plot import plot_speed
from h2o_chat.lab.speed_table import show_speed

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = list(dict.fromkeys(one.environment for one in PROGRAMS.values() if one.environment))
FOREIGN = [name for name, one in PROGRAMS.items() if one.environment]
REAL = os.environ.get("PEERS_FOLDER")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    return stand_ins(tmp_path / "peers", ENVIRONMENTS)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(speed, "wait_until_idle", lambda: True)
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 20)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def measured(model: Path, **wanted: Any) -> Report:
    settings = Settings(model=str(model), budget=320, engine="transformers", dtype="float32")
    usual: dict[str, Any] = {"quantize": ("none",), "seen": (20,), "prompt": 24, "turns": 1, "threads": (1,)}
    return run_speed(Wanted(settings, **usual | wanted))


def test_each_is_named_with_what_it_was_given(
    model: Path, peers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = measured(model, peers=FOREIGN, peers_folder=peers, peer_seen=(8,))
    assert report.absent == []
    theirs = [row for row in report.rows if row.kind == "peer"]
    assert [row.contestant for row in theirs] == [
        "llama.cpp q4_0, 8 seen",
        "openvino-genai int4, 8 seen",
        "openvino-genai-evicting int4, 8 seen",
        "onnxruntime-genai int4, 8 seen",
        "ctranslate2 int8, 8 seen",
    ]
    assert {row.given for row in theirs} == {"its best"}
    assert {row.token_ms for row in theirs} == {PEER_MS}
    log = (peers / "envs" / "openvino-genai" / "bin" / "python.log").read_text().splitlines()
    starts = [line for line in log if line.startswith("start")]
    plain = "start --threads 1 --contexts 8 24"
    assert starts == [plain, f"{plain} --slots 320"]
    show_speed(report)
    said = capsys.readouterr().out
    assert "was given" in said
    assert said.count("its best") == len(theirs)


def test_one_that_is_not_there_is_named_and_the_others_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stand_ins(tmp_path / "peers", ["llama.cpp"])
    (folder / "envs" / "ctranslate2.failed").write_text("no wheel for this processor\n")
    names = ("ctranslate2", "onnxruntime-genai", "llama.cpp")
    report = measured(model, peers=names, peers_folder=folder, peer_seen=(8,))
    assert [row.contestant for row in report.rows if row.kind == "peer"] == ["llama.cpp q4_0, 8 seen"]
    reasons = {one.contestant: one.reason for one in report.absent}
    assert reasons["ctranslate2 int8"] == "It could not be installed: no wheel for this processor"
    assert "tools/make_peers.py" in reasons["onnxruntime-genai int4"]
    show_speed(report)
    assert "did not run: It could not be installed: no wheel" in capsys.readouterr().out


def test_one_that_ends_in_the_middle_is_named_and_the_others_go_on(model: Path, peers: Path) -> None:
    """The stand-in ends at 13 tokens, and with it all of its conversations."""
    python = peers / "envs" / "ctranslate2" / "bin" / "python"
    python.write_text(python.read_text().replace('["13"]', '["never"]'))
    names = ("llama.cpp", "ctranslate2")
    report = measured(model, peers=names, peers_folder=peers, peer_seen=(8, 9), prompt=13)
    theirs = ["ctranslate2 int8, 8 seen", "ctranslate2 int8, 9 seen"]
    assert [row.contestant for row in report.rows if row.kind == "peer"] == theirs
    gone, too = report.absent
    assert (gone.contestant, too.contestant) == ("llama.cpp q4_0, 8 seen", "llama.cpp q4_0, 9 seen")
    assert gone.reason == "llama.cpp has ended with 1 at 'read 13'. thirteen"
    assert "has ended with 1" in too.reason
    assert [ratio.beside for ratio in report.ratios if "stock" not in ratio.beside] == theirs


def test_threads_of_others_wait_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's, told to sleep as torch's are beside the native step, took three times as long."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    assert "GOMP_SPINCOUNT" not in offline()
    assert offline()["PATH"] == os.environ["PATH"]


def test_weights_that_cannot_be_written_are_named(model: Path, peers: Path) -> None:
    python = peers / "envs" / "ctranslate2" / "bin" / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such family')\n")
    report = measured(model, peers=("ctranslate2",), peers_folder=peers, peer_seen=(8,))
    [absent] = report.absent
    assert absent.reason == "The weights for ctranslate2 were not written. no such family"


def test_ages_are_those_that_the_window_has_room_for(model: Path, peers: Path) -> None:
    report = measured(model, peers=("llama.cpp",), peers_folder=peers)
    assert [row.seen_tokens for row in report.rows if row.kind == "peer"] == [512, 2048]


def test_fewer_tokens_than_asked_for_are_no_figure() -> None:
    """A peer that met the end of a text would look fast."""
    lazy = "import sys\nfor _ in sys.stdin: print('{\"ms\": [1.0]}', flush=True)"
    peer = Peer("lazy", [sys.executable, "-c", lazy])
    try:
        with pytest.raises(H2OChatError, match="lazy made 1 tokens, not 32"):
            peer.decode(9, 32)
    finally:
        peer.close()


@pytest.mark.usefixtures("forked")
def test_stock_transformers_obeys(model: Path) -> None:
    """The one peer that is always here, for the script that all of them share."""
    peer, about = start("transformers-bf16", "bf16", Conditions(None, model, [20, 30], 1, 64))
    try:
        assert about["dtype"] == "bfloat16"
        whole = sum(tensor.nbytes for tensor in load_file(model / "model.safetensors").values()) / 2
        assert about["token_bytes"] == whole - 320 * 32 * 2  # of the embedding a row
        assert peer.read(20) > 0
        assert peer.read(30) > 0
        assert peer.decode(20, 4) > 0
        assert peer.decode(30, 40) > 0
    finally:
        peer.close()


def test_lines_over_tokens_seen(model: Path, peers: Path, tmp_path: Path) -> None:
    report = measured(
        model, peers=("llama.cpp",), peers_folder=peers, peer_seen=(64, 32), seen=(20, 40), prompt=8
    )
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plt, "close", lambda figure: drawn.extend(figure.axes))
        assert plot_speed(report, tmp_path / "pictures").read_bytes().startswith(b"\x89PNG")
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in drawn[0].lines}
    assert lines.keys() == {"stock float32", "h2o-chat, transformers float32", "llama.cpp q4_0"}
    assert lines["llama.cpp q4_0"] == ([32, 64], [PEER_MS, PEER_MS])
    assert lines["h2o-chat, transformers float32"][0] == [20, 40]


def test_on_the_command_line(model: Path, peers: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["bench", "speed", "-m", str(model), "-b", "32", "--engine", "transformers", "--json"]
    arguments += ["--quantize", "none", "--threads", "1", "--turns", "1", "--prompt", "8", "--seen", "8"]
    arguments += ["--peers", "ctranslate2", "--peers", "llama.cpp", "--peers-folder", str(peers)]
    arguments += ["--peer-seen", "8", "--plot", str(tmp_path / "pictures")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["program"] for row in found["rows"] if row["kind"] == "peer"] == [
        "ctranslate2 int8",
        "llama.cpp q4_0",
    ]
    assert found["absent"] == []
    assert (tmp_path / "pictures" / "speed.png").exists()


def test_a_process_is_still_once_its_time_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = iter([1.0, 2.0, 3.0, 3.0, 4.0])
    monkeypatch.setattr(idle, "process_s", lambda _: next(takes))
    process: Any = None
    assert wait_until_still(process, most_s=60)
    assert next(takes) == 4.0  # a pair of looks that differ, a pair that do not
    assert not wait_until_still(process, most_s=0)


def test_a_process_that_has_ended_takes_no_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    watched = psutil.Process(process.pid)
    process.wait()
    assert idle.process_s(watched) == 0.0


def test_weights_are_read_with_numpy_alone(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import weights

    config = weights.read_config(model)
    assert (config["num_key_value_heads"], config["head_dim"], config["rope_theta"]) == (2, 16, 10_000.0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        from transformers import LlamaForCausalLM

        LlamaForCausalLM.from_pretrained(model, dtype=dtype).save_pretrained(tmp_path / str(dtype))
        tensors = dict(weights.read_tensors(tmp_path / str(dtype)))
        saved = load_file(tmp_path / str(dtype) / "model.safetensors")
        assert tensors.keys() == saved.keys()
        assert all(np.array_equal(tensors[name], saved[name].float().numpy()) for name in saved)


@pytest.fixture
def make_peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_peers

    return make_peers


def test_every_environment_is_made(make_peers: Any) -> None:
    assert set(make_peers.PACKAGES) == set(ENVIRONMENTS)
    for program in PROGRAMS.values():
        assert (SCRIPTS / program.script).is_file()
        assert not program.writer or (SCRIPTS / program.writer).is_file()


def test_one_that_cannot_be_installed_does_not_stop_the_others(
    make_peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without pip: what it would be told, and what happens where it fails for one."""
    asked = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        wrong = "ctranslate2" in command
        return subprocess.CompletedProcess(
            command, int(wrong), stderr="one\nNo matching wheel" if wrong else ""
        )

    monkeypatch.setattr(venv, "create", lambda place, with_pip: stand_ins(tmp_path, [place.name]))
    monkeypatch.setattr(make_peers.subprocess, "run", pip)
    monkeypatch.setattr(make_peers, "BORROWING", ())
    assert make_peers.main([str(tmp_path)]) == 1
    installed = [command for command in asked if "install" in command]
    assert len(installed) == len(ENVIRONMENTS)
    assert [command[-1] for command in asked if "uninstall" in command] == ["openvino-telemetry"]
    assert (tmp_path / "envs" / "ctranslate2.failed").read_text() == "No matching wheel\n"
    assert not (tmp_path / "envs" / "ctranslate2").exists()
    assert "ctranslate2: not installed: No matching wheel" in capsys.readouterr().out
    with pytest.raises(UsageError, match="No matching wheel"):
        start("ctranslate2", "int8", Conditions(tmp_path, tmp_path, [64], 1, 64))


@pytest.mark.parametrize("name", FOREIGN)
def test_a_real_one_obeys(name: str, tmp_path: Path) -> None:
    if REAL is None or not (Path(REAL) / "envs" / PROGRAMS[name].environment).exists():
        pytest.skip("PEERS_FOLDER names no folder with it")
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "envs").symlink_to(Path(REAL).resolve() / "envs")
    model = tiny_model(tmp_path / "model", hidden=128)
    peer, about = start(name, PROGRAMS[name].form, Conditions(folder, model, [40, 640], 1, 256))
    try:
        assert about["given"]
        assert 0 < about["token_bytes"] < 4 * 320 * 128 * 2 + 4 * 2 * 7 * 128 * 128
        for tokens in (40, 640):
            assert peer.read(tokens) > 0
        for tokens in (40, 640) * 3:
            assert peer.decode(tokens, 8) > 0
    finally:
        peer.close()
