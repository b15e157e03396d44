"""`h2o-chat bench speed`: who is compared with whom, and what a peer is asked; times are not judged here."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from gguf_files import write
from safetensors.torch import load_file
from stand_in import PEER_MS, stand_ins, tiny_model
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.cli.cli import app
from h2o_chat.lab import idle, speed
from h2o_chat.lab.idle import Sample, busy_processes
from h2o_chat.lab.peer import Peer
from h2o_chat.lab.racers import Wanted
from h2o_chat.lab.speed import Report, run_speed
from h2o_chat.lab.speed_table import show_speed


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    return stand_ins(tmp_path / "peers", ["llama.cpp"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Does not wait for an idle machine; reads less for the bandwidth; leaves torch's threads alone."""
    monkeypatch.setattr(speed, "wait_until_idle", lambda: True)
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 20)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def measured(model: Path, **wanted: Any) -> Report:
    settings = Settings(model=str(model), budget=32, engine="transformers", dtype="float32")
    usual: dict[str, Any] = {"quantize": ("none",), "seen": (20,), "prompt": 24, "turns": 2, "threads": (1,)}
    return run_speed(Wanted(settings, **usual | wanted))


def test_a_gguf_file(model: Path, peers: Path, tmp_path: Path) -> None:
    """llama.cpp reads the same file; what reads none is named."""
    file = write(model, tmp_path / "tiny.gguf", "Q8_0")
    report = measured(
        file, quantize=("auto",), peers=("llama.cpp", "ctranslate2"), peers_folder=peers, peer_seen=(8,)
    )
    assert [row.contestant for row in report.rows] == [
        "stock float32",
        "transformers float32",
        "llama.cpp gguf, 8 seen",
    ]
    stored = load_file(model / "model.safetensors")
    del stored["model.embed_tokens.weight"]
    read = [one.numel() * 34 // 32 if one.ndim == 2 else one.nbytes for one in stored.values()]
    assert report.rows[2].weight_bytes == sum(read), "an embedding of its own is read row by row"
    assert not (peers / "files").exists()
    assert [one.contestant for one in report.absent] == ["ctranslate2 int8"]
    assert "tiny.gguf" in report.absent[0].reason


def test_a_peer_takes_turns(model: Path, peers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = measured(model, peers=("llama.cpp",), peers_folder=peers, peer_seen=(8, 70))
    names = ["stock float32", "transformers float32", "llama.cpp q4_0, 8 seen", "llama.cpp q4_0, 70 seen"]
    assert [row.contestant for row in report.rows] == names
    assert [row.token_ms for row in report.rows[2:]] == [PEER_MS, PEER_MS]
    assert all(len(row.turn_ms) == 2 for row in report.rows)
    assert [row.turns for row in report.rows] == [
        3,
        3,
        3,
        2,
    ]  # peers of one format read one prompt
    assert report.rows[2].weight_bytes == 1000
    assert [(one.contestant, one.beside) for one in report.ratios] == [
        (names[1], other) for other in (names[0], *names[2:])
    ]
    ours = report.rows[1].turn_ms
    assert report.ratios[1].token == pytest.approx(sum(ours) / 2 / PEER_MS)
    assert report.ratios[1].worst == pytest.approx(max(ours) / PEER_MS)
    log = (peers / "envs" / "llama.cpp" / "bin" / "python.log").read_text().splitlines()
    turns = [f"decode {seen} {speed.TURN_TOKENS}" for seen in (8, 70)]
    assert log == [
        *("start --threads 1 --contexts 8 70 24", "about", "read 24", "read 24"),
        *("read 8", turns[0], "read 70", turns[1]),
        *turns,
        *turns,
    ]
    show_speed(report)
    said = capsys.readouterr().out
    times = 1 / report.ratios[1].token
    assert f"transformers float32: a token is {times:.2f} times as fast as llama.cpp q4_0, 8 seen" in said


def test_a_file_is_made_once(model: Path, peers: Path) -> None:
    wanted: dict[str, Any] = {"peers": ("llama.cpp",), "peers_folder": peers, "peer_seen": (8,), "turns": 1}
    measured(model, **wanted)
    [file] = (peers / "files").glob("*.gguf")
    file.write_text("as it was")
    measured(model, **wanted)
    assert file.read_text() == "as it was"


def test_ours_beside_ours(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What differs in one thing is compared with the first of that kind, not with everything."""
    report = measured(model, seen=(20, 90), threads=(1, 2), sampled=True, turns=1)
    assert len(report.rows) == 1 + 2 * 2 * 2
    pairs = {(one.contestant, one.beside) for one in report.ratios}
    first = "transformers float32, 20 seen, 1 threads"
    aged = "transformers float32, 90 seen, 1 threads"
    assert {(first, "stock float32"), (aged, first), (f"{first}, sampled", first)} <= pairs
    assert (f"{aged}, sampled", f"{first}, sampled") in pairs
    assert (aged, "stock float32") not in pairs
    assert [row.seen_tokens for row in report.rows if row.contestant == aged] == [90]
    show_speed(report)
    assert f"beside {first}." in capsys.readouterr().out


def test_json(model: Path, peers: Path) -> None:
    arguments = ["bench", "speed", "-m", str(model), "-b", "32", "--engine", "transformers"]
    arguments += ["--quantize", "none", "--threads", "1", "--turns", "1", "--prompt", "8", "--seen", "8"]
    arguments += ["--peers", "llama.cpp", "--peers-folder", str(peers), "--peer-seen", "8", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["kind"] for row in found["rows"]] == ["stock", "ours", "peer"]
    assert len(found["ratios"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peers", "llama.cpp"], "--peers needs --peers-folder"),
        (["--peers", "whisper", "--peers-folder", "."], "--peers 'whisper' is not known"),
        (["--peers", "llama.cpp", "--peers-folder", ".", "--peer-format", "q3"], "--peer-format 'q3'"),
        (["--peers", "llama.cpp", "--peers-folder", "nowhere"], "tools/make_peers.py nowhere"),
    ],
)
def test_usage_errors(model: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "speed", "-m", str(model), "--turns", "1", *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_a_peer_that_ends_says_why(peers: Path) -> None:
    python = peers / "envs" / "llama.cpp" / "bin" / "python"
    peer = Peer("llama.cpp", [python, "llama.py", "any.gguf"])
    try:
        assert peer.decode(9, 2) == 2 * PEER_MS
        with pytest.raises(H2OChatError, match="has ended with 1 at 'read 13'") as raised:
            peer.read(13)
        assert raised.value.hint == "thirteen"
    finally:
        peer.close()
    assert not peer.process.is_running()


def test_busy_processes_are_busy_and_known() -> None:
    with busy_processes(2) as known:
        assert len({one.pid for one in known}) == 2
        while min(map(idle.process_s, known)) < 0.05:  # until both have run
            time.sleep(0.01)
    assert not any(map(psutil.Process.is_running, known))


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
    for known, disturbed in (((), True), ((process,), False)):
        with Sample(known) as sample:
            everybody["s"] += 0.5
            process.took += 0.5
        assert sample.disturbed is disturbed
