"""With no model named: which one it is, that it is said, and how it is sampled: as its makers recommend."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from gguf_files import write
from here import h2o_here
from program import Ended
from tiny_models import tiny

from h2o_chat.models import smollm2

SHORT = ("--max-tokens", "3", "--threads", "1", "--template", "plain")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of the test's own, where SmolLM2 would lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(folder: Path, *more: object) -> Ended:
    done = h2o_here("run", "Hello", *SHORT, "--data", folder, *more)
    return done


def chosen(done: Ended) -> str:
    """The line on stderr about a model that nobody named; empty where one was."""
    found = re.search(r"no model was named: (.*)\n", done.err)
    return found[1] if found else ""


def begin_with_smollm2(tmp_path: Path) -> None:
    """A tiny model lies where SmolLM2 would."""
    smollm2.place().parent.mkdir(parents=True)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32}
    ends = {"vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2}
    tiny("llama", "eager", torch.float32, **sizes, **ends).save_pretrained(tmp_path / "tiny")
    write(tmp_path / "tiny", smollm2.place(), "Q8_0")


def test_smollm2_if_it_is_here_else_pocket(folder: Path, tmp_path: Path) -> None:
    done = run(folder)
    assert chosen(done).startswith("pocket")
    assert "models pull smollm2" in chosen(done)
    begin_with_smollm2(tmp_path)
    done = run(folder, "--save")
    assert chosen(done) == "smollm2"
    assert "h2o-chat: smollm2 (" in done.err
    smollm2.place().unlink()
    assert chosen(run(folder)).startswith("pocket"), "nobody has named smollm2, so nobody misses it"


def test_the_last_one_used_comes_before_it(folder: Path, tmp_path: Path, chatty: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(chatty, mine)
    begin_with_smollm2(tmp_path)
    run(folder, "--save", "-m", "pocket")
    run(folder, "-m", mine)
    assert chosen(run(folder)) == "pocket, the last one used", "the other one was not kept"
    run(folder, "--save", "-m", mine)
    assert chosen(run(folder, "--save")) == "mine, the last one used"
    assert chosen(run(folder)) == "mine, the last one used"
    shutil.rmtree(mine)
    gone = chosen(run(folder))
    assert gone.startswith("smollm2; ")
    assert str(mine) in gone


def test_the_configured_one_comes_before_all(
    folder: Path, tmp_path: Path, chatty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, "--save", "-m", "pocket")
    monkeypatch.setenv("H2O_CHAT_MODEL", str(chatty))
    assert chosen(run(folder)) == f"{chatty}, as configured"
    assert chosen(run(folder, "-m", "pocket")) == ""


def test_a_conversation_that_began_with_no_name_goes_on_with_its_model(folder: Path, tmp_path: Path) -> None:
    run(folder, "--save")
    begin_with_smollm2(tmp_path)
    done = run(folder, "--resume", "last")
    assert "h2o-chat: pocket (" in done.err
    assert chosen(done) == ""


def test_damaged_conversations_do_not_stop_who_stores_nothing(folder: Path) -> None:
    folder.mkdir()
    (folder / "conversations.db").write_text("no database")
    assert chosen(run(folder)).startswith("pocket")


# -- sampling


def drawn(done: Ended) -> str:
    """How stderr says that tokens were chosen, and with which seed."""
    found = re.search(r"(temperature .*), seed (\d+)", done.err)
    assert found, done.err
    return found[1]


def test_sampling_is_as_recommended_and_can_be_repeated(folder: Path, chatty: Path) -> None:
    first = h2o_here("run", "Tell me a story.", "-m", chatty, "--max-tokens", 20, "--data", folder)
    assert drawn(first) == "temperature 0.7, top-p 0.9, min-p 0.05"
    seed = re.search(r"seed (\d+)", first.err)[1]
    again = h2o_here("run", "Tell me a story.", "-m", chatty, "--max-tokens", 20, "--seed", seed)
    assert again.out == first.out


def test_configured_sampling_comes_before_the_makers(
    folder: Path, tmp_path: Path, chatty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(chatty, mine)
    (mine / "generation_config.json").write_text(json.dumps({"temperature": 0.3, "top_k": 9}))
    monkeypatch.setenv("H2O_CHAT_TEMPERATURE", "0.5")
    assert drawn(run(folder, "-m", mine)) == "temperature 0.5, top-k 9"


def test_a_batch_is_sampled_the_same(folder: Path, tmp_path: Path, chatty: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "1", "prompt": "Hello"}\n')
    batch = ("run", "--batch", tmp_path / "in.jsonl", "-m", chatty, *SHORT)
    assert drawn(h2o_here(*batch)) == "temperature 0.7, top-p 0.9, min-p 0.05"
    assert drawn(h2o_here(*batch, "--temperature", "0")) == "temperature 0"
