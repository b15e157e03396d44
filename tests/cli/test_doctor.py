"""`h2o-chat doctor`: what it finds, what it calls wrong, and the exit code."""

import importlib.metadata
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from here import h2o_here
from program import h2o

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli import doctor
from h2o_chat.native import build, library


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of its own, all of them empty."""
    for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


@pytest.fixture
def model(small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model that the settings name."""
    monkeypatch.setenv("H2O_CHAT_MODEL", str(small))
    return small


def problems(report: doctor.DoctorReport) -> str:
    return "\n".join(f"{'!' if one.prevents else ''}{one.what} {one.do}" for one in report.problems)


def test_a_machine_that_is_fine(home: Path, model: Path) -> None:
    done = h2o_here("doctor", "--json")
    assert done.err == ""
    found = json.loads(done.out)
    assert found["ok"]
    assert [one for one in found["problems"] if one["prevents"]] == []
    rows = found["rows"]
    assert all(f"{name} " in rows["versions"] for name in ("h2o-chat", "Python", "torch", "transformers"))
    assert rows["conversations"].startswith(f"{home / 'data'}, ")
    assert rows["conversations"].endswith("saved memories: 0 B")
    assert rows["model"].startswith("stories260k, 260,032 parameters")
    assert "512 slots" in rows["memory"]
    assert list(home.iterdir()) == [], "it changes nothing"


def test_the_report_for_people(home: Path, model: Path) -> None:
    (home / "config" / "h2o-chat").mkdir(parents=True)
    (home / "config" / "h2o-chat" / "config.toml").write_text("[defaults]\nbudget = 64\nseed = [1]\n")
    done = h2o("doctor", env=os.environ | {"PYTHONIOENCODING": "ascii"}, ends=ExitCode.FAILED)
    assert "problem: " in done.out
    assert "[defaults] seed is a list" in done.out
    assert "conversations   " in done.out
    assert "For the screen: export LANG=C.UTF-8" in done.out


@pytest.mark.parametrize("broken", ["torch", "transformers"])
def test_a_broken_installation_is_said(home: Path, model: Path, broken: str) -> None:
    """A module that stands before the real one on Python's path cannot be imported."""
    (home / "path" / broken).mkdir(parents=True)
    (home / "path" / broken / "__init__.py").write_text('raise OSError("libgone.so: no such file")')
    path = {"PYTHONPATH": str(home / "path")}
    done = h2o("doctor", "--json", env=os.environ | path, ends=ExitCode.FAILED)
    assert "Traceback" not in done.err
    found = json.loads(done.out)
    (problem,) = [one for one in found["problems"] if one["prevents"]]
    assert "cannot be imported: OSError: libgone.so: no such file" in problem["what"]
    assert broken in problem["what"] or broken == "transformers"
    assert "260,032 parameters" in found["rows"]["model"], "read without torch"


def test_what_is_missing_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = ["bitsandbytes>=99; extra == 'quantize'", "typer>=0.20"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [*others, "torch>=99"])
    with pytest.raises(UsageError, match=r"torch is 2.* needed is >=99"):
        doctor._versions(doctor.DoctorReport())
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [*others, "no-such-package>=1"])
    with pytest.raises(UsageError, match=r'is not installed\. Install it: pip install "no-such-package>=1"'):
        doctor._versions(doctor.DoctorReport())


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"BUDGET": "0"}, "!H2O_CHAT_BUDGET is 0."),
        ({"BUDGET": "3", "POLICY": "caote"}, "smallest budget that works"),
        ({"BUDGET": "99999999"}, "does not fit: it needs"),
        ({"DEVICE": "cuda:999"}, "!--device 'cuda:999' is not here"),
        ({"MODEL": "no/such-model"}, "!no/such-model is not on this machine, and HF_HUB_OFFLINE is set"),
        ({"MODEL": "/no/such/folder"}, "!No model '/no/such/folder'"),
    ],
)
def test_what_would_not_start_is_said(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"H2O_CHAT_{name}", value)
    report = doctor.examine()
    assert said in problems(report)
    assert report.prevents


def test_a_model_that_can_be_fetched_is_only_a_note(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_MODEL", "qwen3-4b")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    report = doctor.examine()
    assert "h2o-chat models pull Qwen/Qwen3-4B" in problems(report)
    assert not report.prevents


def test_a_model_without_a_tokenizer(home: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "model.safetensors"):
        (home / name).write_bytes((small / name).read_bytes())
    monkeypatch.setenv("H2O_CHAT_MODEL", str(home))
    assert "has no tokenizer" in problems(doctor.examine())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that the library was compiled and runs."""
    monkeypatch.setattr(library, "why_not", lambda: "")
    monkeypatch.setattr(library, "forms", lambda: ["plain", "AVX2"])
    monkeypatch.setattr(build, "made", lambda: build.Made("5e" * 32, "2026-11-22", "g++ 12.2.0"))


@pytest.fixture
def not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that there was no compiler."""
    monkeypatch.setattr(library, "why_not", lambda: "its library was not compiled")
    monkeypatch.setattr(build, "failure", lambda: "There is no C++ compiler:\nnone was found.")


def test_the_native_step(home: Path, compiled: None) -> None:
    report = doctor.examine()
    assert report.rows["native step"] == "AVX2, compiled on 2026-11-22 by g++ 12.2.0"
    assert report.rows["step"] == "native, AVX2"
    assert "weights as int8" in report.rows["memory"]
    assert "There is no native step" not in problems(report)


def test_without_the_native_step(home: Path, model: Path, not_compiled: None) -> None:
    """Everything works; what is missing is said, and the command that makes it."""
    report = doctor.examine()
    assert report.rows["native step"] == "none: its library was not compiled"
    assert report.rows["step"] == "transformers: its library was not compiled; float32 on cpu"
    assert not report.prevents
    assert (
        "There is no native step: its library was not compiled. There is no C++ compiler: none was found."
        in problems(report)
    )
    assert f"{sys.executable} -m h2o_chat.native.build" in problems(report)


def test_the_native_step_was_asked_for_and_is_not_there(
    home: Path, model: Path, not_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2O_CHAT_ENGINE", "native")
    said = "!The native step cannot compute stories260k: its library was not compiled."
    assert said in problems(doctor.examine())


def test_another_step_by_choice(
    home: Path, model: Path, compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2O_CHAT_QUANTIZE", "nf4")
    report = doctor.examine()
    assert report.rows["step"].startswith("transformers: --quantize nf4")
    assert not report.prevents


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is read-only, for root too")
def test_folders_that_cannot_be_written(home: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can still chat: nothing of it is kept."""
    monkeypatch.setenv("H2O_CHAT_DATA", "/proc/h2o")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc")
    report = doctor.examine()
    assert "/proc/h2o cannot be written to: conversations cannot be kept" in problems(report)
    assert "h2o-chat config cannot set anything" in problems(report)
    assert not report.prevents


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(number: int) -> tuple[int, int]:
        raise RuntimeError("CUDA driver\nis broken")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    report = doctor.DoctorReport()
    doctor._gpus(report)
    assert report.rows["GPUs"] == "none"
    assert "CUDA driver is broken" in problems(report)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    report = doctor.DoctorReport()
    doctor._gpus(report)
    assert "torch finds no GPU" in problems(report)
