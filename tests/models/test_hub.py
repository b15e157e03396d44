"""Fetching models from a stand-in hub on the loopback.

By the real program (`h2o`) where a signal, a terminal or time matters; else by its commands in this process
(`here`), which has imported transformers already.
"""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_server import Hub, Repository
from pulled import MIB, Call, forked, on_terminal, repository, snapshot, weights

from h2o_chat.base.errors import ExitCode
from h2o_chat.models.resolve import BUNDLED

pytestmark = pytest.mark.loopback


def test_fetches_what_is_needed_and_nothing_else(hub: Hub, h2o: Call, here: Call, tmp_path: Path) -> None:
    content = weights(2)
    hub.repositories["some/model"] = repository(content)
    done = h2o("models", "pull", "some/model")
    assert (done.returncode, done.stdout) == (ExitCode.OK, "some/model is here.\n"), done.stderr
    assert re.search(r"2 MB in [\d.]+ s, [\d.]+ .B/s", done.stderr)
    folder = snapshot(tmp_path, "some/model")
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (folder / "model.safetensors").read_bytes() == content
    assert not hub.downloads("pytorch_model.bin") + hub.downloads("README.md")

    asked = len(hub.requests)
    assert "some/model is here: " in here("models", "pull", "some/model").stdout
    assert "some/model" in here("models").stdout
    assert here("models", "list").stdout == here("models").stdout
    assert "2,097,152 (U8)" in here("models", "info", "model").stdout
    assert len(hub.requests) == asked, "what is here is not asked for"


def test_shards_of_the_index(hub: Hub, here: Call, tmp_path: Path) -> None:
    model = repository(b"")
    del model.files["model.safetensors"]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    model.files |= {name: weights(1, seed) for seed, name in enumerate(names)}
    model.files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"a": names[0], "b": names[1]}}
    ).encode()
    model.files["consolidated.safetensors"] = weights(1, 9)
    hub.repositories["some/shards"] = model
    assert here("models", "pull", "some/shards").returncode == ExitCode.OK
    fetched = sorted(path.name for path in snapshot(tmp_path, "some/shards").glob("*.safetensors"))
    assert fetched == names


def test_broken_connection_goes_on(hub: Hub, here: Call, tmp_path: Path) -> None:
    content = weights(32)
    hub.repositories["some/model"] = repository(content, cuts=1)
    done = here("models", "pull", "some/model")
    assert done.returncode == ExitCode.OK, done.stderr
    first, second = hub.downloads("model.safetensors")
    assert first == ""
    assert re.fullmatch(r"bytes=\d{8}-", second), "the rest, not all of it"
    assert (snapshot(tmp_path, "some/model") / "model.safetensors").read_bytes() == content


def test_a_killed_download_goes_on_in_the_next_call(
    hub: Hub, here: Call, environment: dict[str, str], tmp_path: Path
) -> None:
    content = weights(32)
    hub.repositories["some/model"] = repository(content, seconds_per_mib=0.1)
    process = forked(environment, "models", "pull", "some/model", stderr=subprocess.PIPE, text=True)
    blobs = tmp_path / "hf" / "hub" / "models--some--model" / "blobs"
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size >= 10 * MIB for path in blobs.glob("*.incomplete")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "the next call goes on" in said
    assert "in part" in here("models").stdout

    hub.repositories["some/model"].seconds_per_mib = 0
    done = here("models", "pull", "some/model")
    assert done.returncode == ExitCode.OK, done.stderr
    assert re.search(r"\d+ MB were here already", done.stderr)
    assert re.fullmatch(r"bytes=\d{8}-", hub.downloads("model.safetensors")[-1])
    assert (snapshot(tmp_path, "some/model") / "model.safetensors").read_bytes() == content


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_sees_bytes_and_rate(hub: Hub, environment: dict[str, str]) -> None:
    hub.repositories["some/model"] = repository(weights(32), seconds_per_mib=0.05)
    shown, code = on_terminal(environment, "models", "pull", "some/model")
    assert code == ExitCode.OK
    assert re.search(r"\d+ .B of 34 MB", shown)
    assert re.search(r"[\d.]+ .B/s", shown)


def test_a_name_is_fetched_when_it_is_used(hub: Hub, here: Call, shared_models: Path) -> None:
    """From a short name of the user's own to an answer; afterwards nobody is asked any more."""
    folder = shared_models / "stories260k"
    hub.repositories["some/stories"] = Repository(
        {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    )
    flags = ("--max-tokens", "5", "--budget", "32")
    done = here("run", "Once", "-m", "some/stories", *flags)
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout
    assert "some/stories (none, float32, cpu, transformers)" in done.stderr
    asked = len(hub.requests)
    again = here("run", "Once", "-m", "stories", *flags)
    assert (again.returncode, again.stdout) == (ExitCode.OK, done.stdout)
    assert len(hub.requests) == asked


def test_token_opens_a_gated_model(hub: Hub, here: Call) -> None:
    hub.repositories["some/gated"] = repository(weights(), gated=True)
    assert here("models", "pull", "some/gated", HF_TOKEN="hf_good").returncode == ExitCode.OK
    assert "Bearer hf_good" in hub.tokens


def test_what_was_fetched_is_packed_and_goes_with_it(
    hub: Hub, here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("h2o_chat.native.library.why_not", lambda: "")
    pocket = next(one for one in BUNDLED if one.is_dir())
    files = {one.name: one.read_bytes() for one in pocket.iterdir() if one.is_file()}
    hub.repositories["some/model"] = Repository(files)
    done = here("models", "pull", "some/model", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout == "some/model is here.\nPacked: int8, 3 MB.\n"
    (packed,) = (tmp_path / "cache").rglob("*.h2o")
    done = here("models", "rm", "some/model", "--yes", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stdout == "Removed some/model.\n"
    assert not packed.exists()
    assert not snapshot(tmp_path, "some/model").exists()


def test_a_model_that_cannot_be_packed_is_fetched_all_the_same(
    hub: Hub, here: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("h2o_chat.native.library.why_not", lambda: "")
    hub.repositories["some/model"] = repository(weights())
    done = here("models", "pull", "some/model", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == ExitCode.OK
    assert done.stdout == "some/model is here.\n"
    assert "it is not packed yet:" in done.stderr
    assert "lacks the weights model.embed_tokens.weight" in done.stderr
