"""`tools/peers/speed.py`: other programs take turns with this one; those that do not run are named.

Other programs are stood in for. `PEERS_FOLDER=FOLDER` also tries those that `make_environments.py` made
there.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file
from stand_in import PEER_MS, stand_ins, tiny_model

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "peers"))
import make_environments
import programs
import speed
import weights
from gguf_files import write

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.lab.bench.speed import TURN_TOKENS
from h2o_chat.lab.bench.timed_programs import Sample

FOREIGN = [name for name, one in programs.PROGRAMS.items() if one.environment]
REAL = os.environ.get("PEERS_FOLDER")

pytestmark = pytest.mark.usefixtures("timed_at_once")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stand_ins(tmp_path / "peers", make_environments.PACKAGES)


@pytest.fixture
def measured(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the tool; its report."""

    def run(model: Path, peers: str, folder: Path, *more: object) -> Any:
        arguments = ["-m", model, "--peers", peers, "--folder", folder, "-b", "320", "--quantize", "none"]
        arguments += ["--threads", "1", "--turns", "2", "--prompt", "24", "--seen", "8,70", "--json", *more]
        assert speed.main(list(map(str, arguments))) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_program_takes_turns(model: Path, folder: Path, measured: Any) -> None:
    report = measured(model, "llama.cpp", folder)
    names = [row["peer"] for row in report["rows"]]
    assert names[4:] == ["llama.cpp q4_0, 8 seen", "llama.cpp q4_0, 70 seen"]
    assert [row["token_ms"] for row in report["rows"][4:]] == [PEER_MS, PEER_MS]
    assert [row["turns"] for row in report["rows"]] == [3, 2] * 3  # a program reads one prompt
    pairs = [(one["peer"], one["beside"]) for one in report["ratios"]]
    assert pairs == [(names[2 + at % 2], names[at]) for at in (0, 1, 4, 5)] + [(names[3], names[2])]
    ours = report["rows"][2]["turn_ms"]
    assert report["ratios"][2]["token"] == pytest.approx(sum(ours) / 2 / PEER_MS)
    log = (folder / "envs" / "llama.cpp" / "bin" / "python.log").read_text().splitlines()
    turns = [f"decode {seen} {TURN_TOKENS}" for seen in (8, 70)]
    assert log == [
        *("start --threads 1 --contexts 8 70 24", "about", "read 24", "read 24"),
        *("read 8", turns[0], "read 70", turns[1], *turns, *turns),
    ]


def test_the_table_says_what_each_was_given(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", str(model), "--peers", ",".join(FOREIGN), "--folder", str(folder), "-b", "320"]
    arguments += ["--quantize", "none", "--threads", "1", "--turns", "1", "--prompt", "8", "--seen", "8"]
    assert speed.main(arguments) == 0
    said = capsys.readouterr().out
    assert said.count("its best") == len(FOREIGN)
    log = (folder / "envs" / "openvino" / "bin" / "python.log").read_text().splitlines()
    assert [line for line in log if line.startswith("start")] == ["start --threads 1 --contexts 8"]


def test_a_gguf_file_is_read_as_it_is(model: Path, folder: Path, measured: Any, tmp_path: Path) -> None:
    file = write(model, tmp_path / "tiny.gguf", "Q8_0")
    report = measured(file, "llama.cpp,openvino", folder, "--quantize", "auto")
    theirs = [row for row in report["rows"] if row["kind"] == "other"]
    assert {row["program"] for row in theirs} == {"llama.cpp gguf"}
    stored = load_file(model / "model.safetensors")
    del stored["model.embed_tokens.weight"]
    read = [one.numel() * 34 // 32 if one.ndim == 2 else one.nbytes for one in stored.values()]
    assert theirs[0]["weight_bytes"] == sum(read), "an embedding of its own is read row by row"
    assert not (folder / "files").exists()
    assert [one["peer"] for one in report["absent"]] == ["openvino"]
    assert "tiny.gguf" in report["absent"][0]["reason"]


def test_a_file_is_made_once(model: Path, folder: Path, measured: Any) -> None:
    """llama.cpp's by this program, the others' by a script in their environment."""
    report = measured(model, "llama.cpp,openvino", folder)
    written = {row["program"]: row["weight_bytes"] for row in report["rows"] if row["kind"] == "other"}
    assert written["openvino int4"] == 1000
    [gguf] = (folder / "files").glob("*q4_0")
    assert 0 < written["llama.cpp q4_0"] < gguf.stat().st_size
    [file] = (folder / "files").glob("*int4")
    file.write_text("as it was")
    made = gguf.stat().st_mtime_ns
    measured(model, "llama.cpp,openvino", folder)
    assert (file.read_text(), gguf.stat().st_mtime_ns) == ("as it was", made)


def test_a_program_that_is_not_there_is_named_and_the_others_run(
    model: Path, tmp_path: Path, measured: Any
) -> None:
    folder = stand_ins(tmp_path / "peers", ["llama.cpp"])
    (folder / "envs" / "openvino.failed").write_text("no wheel for this processor\n")
    report = measured(model, "openvino,llama.cpp", folder)
    assert {row["program"] for row in report["rows"] if row["kind"] == "other"} == {"llama.cpp q4_0"}
    assert report["absent"] == [
        {"peer": "openvino", "reason": "It could not be installed: no wheel for this processor"}
    ]


def test_a_program_that_ends_in_the_middle_is_named_and_the_others_go_on(
    model: Path, folder: Path, measured: Any
) -> None:
    """The stand-in ends at 13 tokens, and with it all of its conversations."""
    python = folder / "envs" / "openvino" / "bin" / "python"
    python.write_text(python.read_text().replace('["13"]', '["never"]'))
    report = measured(model, "llama.cpp,openvino", folder, "--prompt", 13)
    theirs = ["openvino int4, 8 seen", "openvino int4, 70 seen"]
    assert [row["peer"] for row in report["rows"] if row["kind"] == "other"] == theirs
    gone, too = report["absent"]
    assert gone == {
        "peer": "llama.cpp q4_0, 8 seen",
        "reason": "llama.cpp has ended with 1 at 'read 13'. thirteen",
    }
    assert "has ended with 1" in too["reason"]


def test_weights_that_cannot_be_written_are_named(model: Path, folder: Path, measured: Any) -> None:
    python = folder / "envs" / "openvino" / "bin" / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such family')\n")
    [absent] = measured(model, "openvino", folder)["absent"]
    assert absent["reason"] == "The weights for openvino were not written. no such family"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--peers", "whisper"], "--peers 'whisper' is not known"), (["--shape", "whale"], "Shape 'whale'")],
)
def test_usage_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = speed.main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_without_a_folder_it_says_how_one_is_made(model: Path, measured: Any) -> None:
    with pytest.raises(UsageError, match="needs --folder"):
        programs.python_in(None, "llama.cpp")
    with pytest.raises(UsageError, match="is not there"):
        programs.python_in(Path("nowhere"), "llama.cpp")


def test_threads_of_others_wait_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's, told to sleep as torch's are beside the native step, took three times as long."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    assert "GOMP_SPINCOUNT" not in programs.offline()
    assert programs.offline()["PATH"] == os.environ["PATH"]


def test_fewer_tokens_than_asked_for_are_no_figure() -> None:
    """A program that met the end of a text would look fast."""
    lazy = "import sys\nfor _ in sys.stdin: print('{\"ms\": [1.0]}', flush=True)"
    driven = programs.Driven("lazy", [sys.executable, "-c", lazy])
    try:
        with pytest.raises(H2OChatError, match="lazy made 1 tokens, not 32"):
            driven.decode(9, 32)
    finally:
        driven.close()
    assert not driven.process.is_running()


@pytest.mark.usefixtures("forked")
def test_stock_transformers_obeys(model: Path) -> None:
    """The one program that is always here, for the script that all of them share."""
    driven, about = programs.start("transformers-bf16", programs.Conditions(None, model, [20, 30], 1))
    try:
        assert about["dtype"] == "bfloat16"
        whole = sum(tensor.nbytes for tensor in load_file(model / "model.safetensors").values()) / 2
        assert about["token_bytes"] == whole - 320 * 32 * 2  # of the embedding a row
        assert driven.read(20).ms > 0
        assert driven.read(30).ms > 0
        assert driven.decode(20, 4).ms > 0
        assert driven.decode(30, 40).ms > 0
    finally:
        driven.close()


def test_weights_are_read_with_numpy_alone(tmp_path: Path, model: Path) -> None:
    from transformers import LlamaForCausalLM

    config = weights.read_config(model)
    assert (config["num_key_value_heads"], config["head_dim"], config["rope_theta"]) == (2, 16, 10_000.0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        LlamaForCausalLM.from_pretrained(model, dtype=dtype).save_pretrained(tmp_path / str(dtype))
        tensors = dict(weights.read_tensors(tmp_path / str(dtype)))
        saved = load_file(tmp_path / str(dtype) / "model.safetensors")
        assert tensors.keys() == saved.keys()
        assert all(np.array_equal(tensors[name], saved[name].float().numpy()) for name in saved)


def test_every_environment_can_be_made_and_every_script_is_there() -> None:
    assert set(make_environments.PACKAGES) == {programs.PROGRAMS[name].environment for name in FOREIGN}
    for program in programs.PROGRAMS.values():
        assert (programs.SCRIPTS / program.script).is_file()
        assert (programs.SCRIPTS / program.writer).exists()


def test_an_environment_that_cannot_be_made_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without pip: what it would be told, and what happens where it fails for one."""
    asked = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        wrong = "llama-cpp-python" in command[-2:]
        return subprocess.CompletedProcess(command, int(wrong), stderr="one\nNo compiler" if wrong else "")

    monkeypatch.setattr(venv, "create", lambda place, with_pip: stand_ins(tmp_path, [place.name]))
    monkeypatch.setattr(make_environments.subprocess, "run", pip)
    assert make_environments.main([str(tmp_path)]) == 1
    assert [command[-1] for command in asked if "uninstall" in command] == ["openvino-telemetry"]
    assert not (tmp_path / "envs" / "llama.cpp").exists()
    assert "llama.cpp: not installed: No compiler" in capsys.readouterr().out
    with pytest.raises(UsageError, match="No compiler"):
        programs.python_in(tmp_path, "llama.cpp")


@pytest.mark.parametrize("name", FOREIGN)
def test_a_real_one_obeys(name: str, tmp_path: Path) -> None:
    if REAL is None or not (Path(REAL) / "envs" / programs.PROGRAMS[name].environment).exists():
        pytest.skip("PEERS_FOLDER names no folder with it")
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "envs").symlink_to(Path(REAL).resolve() / "envs")
    model = tiny_model(tmp_path / "model", hidden=128)
    driven, about = programs.start(name, programs.Conditions(folder, model, [40, 640], 1))
    try:
        assert about["given"]
        assert 0 < about["token_bytes"] < 4 * 320 * 128 * 2 + 4 * 2 * 7 * 128 * 128
        for tokens in (40, 640):
            assert driven.read(tokens).ms > 0
        for tokens in (40, 640) * 3:
            assert driven.decode(tokens, 8).ms > 0
    finally:
        driven.close()


def test_a_process_is_still_once_its_time_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = iter([1.0, 2.0, 3.0, 3.0, 4.0])
    monkeypatch.setattr(programs, "process_s", lambda _: next(takes))
    process: Any = None
    assert programs.wait_until_still(process, most_s=60)
    assert next(takes) == 4.0  # a pair of looks that differ, a pair that do not
    assert not programs.wait_until_still(process, most_s=0)


def test_what_is_known_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of processor time passes: of others, or of a process that is meant to run."""
    usual = psutil.cpu_times()

    class Process:
        took = 0.0

        def cpu_times(self) -> Any:
            return usual._replace(user=self.took, system=0.0)

    process: Any = Process()
    everybody = {"s": 0.0}
    monkeypatch.setattr(
        psutil, "cpu_times", lambda: usual._replace(user=everybody["s"], nice=0.0, system=0.0)
    )
    for made, disturbed in ((Sample(), True), (programs.SampleOf(process), False)):
        with made as sample:
            everybody["s"] += 0.5
            process.took += 0.5
        assert sample.disturbed is disturbed


def test_a_process_that_has_ended_takes_no_time() -> None:
    pid = os.posix_spawnp("true", ["true"], {})
    watched = psutil.Process(pid)
    os.waitpid(pid, 0)
    assert programs.process_s(watched) == 0.0
