"""GGUF files and ollama's models, as the program is given them."""

from pathlib import Path

import pytest
import torch
from gguf_files import write
from here import h2o_here
from ollama_store import keep
from tiny_models import tiny

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Session, Turn
from h2o_chat.native import library

GREEDY = ("--temperature", 0, "--max-tokens", 12, "--json")


@pytest.fixture(scope="module")
def chatting(shared_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with a chat template, in Q8_0."""
    folder = shared_models / "pilot-chat"
    template = (folder / "chat_template.jinja").read_text("utf-8")
    path = tmp_path_factory.mktemp("files") / "pilot.gguf"
    return write(folder, path, "Q8_0", tokenizer=folder, template=template)


@pytest.fixture(scope="module")
def plain(shared_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model without one, in Q4_0."""
    folder = shared_models / "stories3m"
    return write(folder, tmp_path_factory.mktemp("files") / "stories.gguf", "Q4_0", tokenizer=folder)


@pytest.fixture
def store(chatting: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both, kept as ollama keeps them."""
    root = tmp_path / "ollama"
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    keep(root, chatting, "pilot", license="\nApache License\x1b[2J\nVersion 2.0", template="{{ .Prompt }}")
    keep(root, plain, "stories", "3m", template="{{ .Prompt }}")
    return root


def answered(model: object, *more: object) -> tuple[Session, str]:
    done = h2o_here("run", "Hello, who are you?", "-m", model, *GREEDY, *more)
    return done.of(Session)[0], done.of(Turn)[0].text


@pytest.mark.parametrize("engine", ["native", "transformers"])
def test_a_file_answers_as_its_folder(engine: str, chatting: Path, shared_models: Path) -> None:
    if engine == "native" and library.why_not():
        pytest.skip(f"there is no native step: {library.why_not()}")
    session, said = answered(chatting, "--engine", engine)
    assert (session.model, session.engine, session.template) == ("pilot.gguf", engine, "model")
    assert session.revision.startswith("weights-")
    assert said == answered(shared_models / "pilot-chat", "--engine", engine)[1]


def test_a_model_of_ollama_answers(store: Path, chatting: Path) -> None:
    session, said = answered("ollama:pilot")
    assert session.model == "ollama:pilot"
    assert said == answered(chatting)[1]


def test_a_template_is_asked_for(store: Path, plain: Path) -> None:
    for model in (plain, "ollama:stories:3m"):
        done = h2o_here("run", "Once", "-m", model, ends=ExitCode.USAGE)
        assert "comes without a chat template" in done.err
        assert "--template alpaca, vicuna, llama-2, chatml; or plain" in done.err
        assert answered(model, "--template", "plain")[0].template == "plain"


def test_a_conversation_goes_on(chatting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from another folder; and a file that was changed meanwhile is noticed."""
    data = tmp_path / "data"
    monkeypatch.chdir(chatting.parent)
    h2o_here(
        *("--plain", "-m", chatting.name, "--data", data, "--max-tokens", 8), piped="Hello\n/budget 64\n"
    )
    monkeypatch.chdir(tmp_path)
    assert answered("pilot", "--data", data)[0].model == "pilot.gguf", "it was used before"
    done = h2o_here("--plain", "-m", "pocket", "--data", data, piped="/model pilot\n")
    assert "pilot.gguf is ready" in done.out + done.err
    done = h2o_here("run", "Why?", "--resume", "last", "--data", data, *GREEDY)
    assert done.of(Session)[0].model == "pilot.gguf"


def test_they_are_listed(store: Path) -> None:
    damaged = store / "manifests" / "registry.ollama.ai" / "library" / "pilot" / "damaged"
    damaged.write_text("{}")
    done = h2o_here("models")
    [pilot, other] = [line for line in done.out.splitlines() if "ollama:pilot" in line]
    assert "ollama:pilot:damaged" in other, "what cannot be read comes last"
    assert pilot.split()[:3] == ["ollama:pilot", "3", "MB"]
    assert pilot.endswith(r"ollama's, Apache License\x1b[2J, runs")
    [stories] = [line for line in done.out.splitlines() if "ollama:stories:3m" in line]
    assert stories.endswith("ollama's, runs with --template")
    assert "is damaged: it is no manifest of a model" in other
    next((store / "blobs").glob("sha256-*")).unlink()
    h2o_here("models")


def test_info(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = h2o_here("models", "info", "ollama:pilot", "--check").out
    rows = {line[2:].partition("  ")[0]: line.split("  ")[-1].strip() for line in said.splitlines()[1:]}
    assert rows["held as"].startswith("Q8_0, ")
    assert rows["template"] == "the model's own"
    assert rows["revision"] == "none: a file"
    assert rows["parameters"].endswith("(Q8_0)")
    done = h2o_here("models", "rm", "ollama:pilot", "--yes", ends=ExitCode.MODEL)
    assert "ollama rm NAME" in done.err


def test_the_doctor_looks_at_a_file(chatting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_MODEL", str(chatting))
    done = h2o_here("doctor")
    assert "pilot.gguf" in done.out
    assert "Q8_0" in done.out


def test_a_file_that_is_damaged_or_not_there_is_told_of(chatting: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(chatting.read_bytes()[:100_000])
    (tmp_path / "short.gguf").write_bytes(b"GGUFxxxx")
    wrong = {"cut": " is damaged", "gone": "There is no file", "short": "it ends too soon"}
    for name, said in wrong.items():
        done = h2o_here("run", "Hi", "-m", tmp_path / f"{name}.gguf", ends=ExitCode.MODEL)
        assert said in done.err
        assert f"{name}.gguf" in done.err


def test_what_transformers_reads_slowly_is_said_at_once(shared_models: Path, tmp_path: Path) -> None:
    """Before torch is imported; where stderr is no terminal, too, and again while it goes on."""
    folder = shared_models / "stories3m"
    values = {"general.architecture": "starcoder2", "starcoder2.block_count": 6}
    file = write(folder, tmp_path / "slow.gguf", "F32", values=values, tokenizer=folder)
    done = h2o_here("run", "Once", "-m", file, "--template", "plain", ends=ExitCode.MODEL)
    first, *_ = done.err.splitlines()
    assert first.startswith("h2o-chat: open slow.gguf: ")
    assert "starcoder2, which transformers reads" in first


def test_the_budget_follows_from_the_model(tmp_path: Path) -> None:
    """Unless one is named, or was: then it stays."""
    sizes = {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 16, "hidden_size": 256}
    folder = tmp_path / "model"
    tiny("llama", "eager", torch.float32, **sizes, intermediate_size=4096, vocab_size=320).save_pretrained(
        folder
    )
    file = write(folder, tmp_path / "model.gguf", "Q8_0", values={"llama.context_length": 4096})
    said = ("--template", "plain", "--engine", "transformers")
    assert answered(file, *said)[0].budget == 2048
    assert answered(file, *said, "--budget", 512)[0].budget == 512
    kept = (*said, "--budget", 700, "--save", "--data", tmp_path / "data")
    assert answered(file, *kept)[0].budget == 700
    assert answered(file, "--resume", "last", "--data", tmp_path / "data")[0].budget == 700
