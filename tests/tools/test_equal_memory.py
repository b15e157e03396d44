"""`tools/peers/speed.py --kv-gib`: each program gets as many rows as fit; rates add up from the times."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from forking import Forked
from stand_in import stand_ins, tiny_model

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "peers"))
import equal_memory
import speed
from equal_memory import Memory, Report, run_equal_memory

KV_BYTES, TOKENS_IN, TOKENS_OUT = 1 << 18, 64, 64
FULL_BYTES = 2 * 2 * 2 * 16 * (TOKENS_IN + TOKENS_OUT)
"""Numbers of a full cache: keys and values of 2 layers with 2 heads of 16."""
STAND_IN = f"""#!{sys.executable}
import json, sys
from pathlib import Path
program, file, *rest = sys.argv[1:]
if program.endswith("_file.py"):
    Path(rest[0]).write_text("weights")
    print(json.dumps({{"token_bytes": 1000}}))
    sys.exit()
rows = int(rest[rest.index("--rows") + 1])
if rows == 9:
    sys.exit("no memory for nine")
print("something of its own")
step_ms = [[4.0], [5.0, 50.0, 5.0], [6.0], [9.0]]
print(json.dumps({{"given": "its best", "prompt_ms": 10.0, "step_ms": step_ms}}))
"""


def settings_of(model: Path) -> Settings:
    return Settings(model=str(model), budget=32, threads=1, engine="transformers", dtype="float32", seed=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("full") / "model")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_ins(tmp_path_factory.mktemp("peers"), ["llama.cpp"], STAND_IN)


@pytest.fixture(scope="module")
def report(model: Path, peers: Path) -> Report:
    """With stock transformers as it is, and a stand-in for llama.cpp."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_memory, "wait_until_idle", lambda: True)
        patch.setattr(equal_memory, "TURNS", 1)
        patch.setattr(subprocess, "Popen", Forked)
        return run_equal_memory(settings_of(model), Memory(KV_BYTES, TOKENS_IN, TOKENS_OUT), peers)


def test_each_has_as_many_rows_as_fit(report: Report) -> None:
    assert report.absent == []
    ours, whole, half, llama, as_many = report.rows
    assert [whole.rows, half.rows, llama.rows] == [KV_BYTES // (size * FULL_BYTES) for size in (4, 2, 2)]
    assert as_many.rows == ours.rows > half.rows
    assert as_many.program == f"llama.cpp q8_0, {ours.rows} slots"
    for one in (ours, whole, half, llama):
        assert one.kv_mb <= KV_BYTES / 1e6 < one.kv_mb * (one.rows + 1) / one.rows
    assert as_many.kv_mb == pytest.approx(2 * FULL_BYTES * as_many.rows / 1e6)


def test_rates_are_what_the_times_add_up_to(report: Report) -> None:
    assert report.memory.lengths == [72, 88, 104, 120], "the middle of each quarter"
    for one in report.rows:
        assert len(one.step_ms) == 4
        assert min(one.step_ms) > 0
        assert one.prompt_ms > 0
        answers_s = sum(TOKENS_OUT / 4 * ms for ms in one.step_ms) / 1000
        tokens = one.rows * TOKENS_OUT
        assert one.decode_tok_s == pytest.approx(tokens / answers_s)
        assert one.tok_s == pytest.approx(tokens / (answers_s + one.rows * one.prompt_ms / 1000))
    llama = report.rows[3]
    assert (llama.given, llama.prompt_ms, llama.step_ms) == ("its best", 10.0, [4.0, 5.0, 6.0, 9.0])
    first, second, *full = report.rows[0].step_ms
    assert full[0] == full[1] != first, "32 slots and their stride are full after 96 tokens: measured once"
    assert second != first


def test_a_program_that_does_not_run_is_named_with_its_reason(
    model: Path, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal_memory, "wait_until_idle", lambda: True)
    few = Memory(9 * 2 * FULL_BYTES, TOKENS_IN, TOKENS_OUT)  # nine slots in two bytes a number
    other = equal_memory.measure_other
    with pytest.raises(Exception, match="It has ended with 1") as raised:
        other(settings_of(model), few, peers, "llama.cpp q8_0", "q8_0", None)
    assert raised.value.hint == "no memory for nine"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="needs --folder"):
        other(settings_of(model), few, None, "llama.cpp q8_0", "q8_0", None)
    with pytest.raises(UsageError, match="Not one row fits: its K/V takes"):
        run_equal_memory(settings_of(model), Memory(1000, TOKENS_IN, TOKENS_OUT), peers)


def test_the_command_tells_all_of_it(
    report: Report, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Memory] = []

    def found(_: Any, memory: Memory, __: Any) -> Report:
        asked.append(memory)
        return report

    monkeypatch.setattr(speed, "run_equal_memory", found)
    flags = ["-m", str(model), "--kv-gib", "0.5", "--tokens-in", "7", "--tokens-out", "9"]
    assert speed.main([*flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == asdict(report)
    assert asked == [Memory(1 << 29, 7, 9)]
    assert speed.main(flags) == 0
    shown = capsys.readouterr().out
    verdict = shown.splitlines()[-1]
    ours, whole = report.rows[:2]
    assert verdict.startswith(
        f"Verdict: {ours.tok_s:,.1f} tok/s with {ours.rows:,} rows; {whole.tok_s:,.1f} "
    )
    assert f"transformers float32: {ours.tok_s / whole.tok_s:.2f} times as many" in verdict
    assert all(one.given in shown for one in report.rows)
