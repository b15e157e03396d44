"""Fetching models from a stand-in hub on the loopback, and all that can go wrong.

By the real program (`h2o`) where a signal, a terminal or time matters; else by its commands in this process
(`here`), which has imported transformers already.
"""

import contextlib
import errno
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, Repository, hash_of, serve
from huggingface_hub import constants
from typer.testing import CliRunner

from h2o_chat.base.errors import ExitCode, ModelError
from h2o_chat.cli.cli import app
from h2o_chat.models import refusals
from h2o_chat.models.resolve import BUNDLED

pytestmark = pytest.mark.loopback

PROGRAM = [sys.executable, "-m", "h2o_chat"]
MIB = 1 << 20
Call = Callable[..., subprocess.CompletedProcess[str]]


def weights(mib: int = 1, seed: int = 0) -> bytes:
    """A safetensors file with one tensor of so many MiB."""
    size = mib * MIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes([seed]) * size


def repository(content: bytes, **more: object) -> Repository:
    """A model as people publish them: with much that is not needed."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    files = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"# A model",
        "model.safetensors": content,
        "pytorch_model.bin": b"\0" * 100,
        "original/consolidated.safetensors": b"\0" * 100,
    }
    return Repository(files, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    """One hub for all tests; each puts its own repositories there."""
    with serve() as hub:
        yield hub


@pytest.fixture
def hub(server: Hub) -> Hub:
    """The hub, empty."""
    server.repositories.clear()
    server.requests.clear()
    server.sent.clear()
    server.tokens.clear()
    return server


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """A user without a cache, a token or a configuration, whose hub is the stand-in."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "TRANSF"))
    }
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def h2o(environment: dict[str, str]) -> Call:
    """Runs `h2o-chat ARGUMENTS`."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            env=environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def here(environment: dict[str, str], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same in this process, where huggingface_hub has read its variables long ago: they are set anew."""
    for name in [name for name in os.environ if name not in environment]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    path = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", path)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = CliRunner().invoke(app, arguments, env=more)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return run


def snapshot(tmp_path: Path, name: str) -> Path:
    return tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT


# -- what works


def test_fetches_what_is_needed_and_nothing_else(hub: Hub, h2o: Call, tmp_path: Path) -> None:
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
    assert "some/model is here: " in h2o("models", "pull", "some/model").stdout
    assert "some/model" in h2o("models").stdout
    assert h2o("models", "list").stdout == h2o("models").stdout
    assert "2,097,152 (U8)" in h2o("models", "info", "model").stdout
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
    process = subprocess.Popen(
        [*PROGRAM, "models", "pull", "some/model"], env=environment, stderr=subprocess.PIPE, text=True
    )
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
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "models", "pull", "some/model"], env=environment | {"COLUMNS": "100"}, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait(timeout=60) == ExitCode.OK
    assert re.search(rb"[\d.]+/33\.6 MB", shown)
    assert re.search(rb"[\d.]+ .B/s", shown)


def test_a_name_is_fetched_when_it_is_used(hub: Hub, h2o: Call, here: Call, shared_models: Path) -> None:
    """From a short name of the user's own to an answer; afterwards nobody is asked any more."""
    folder = shared_models / "stories260k"
    hub.repositories["some/stories"] = Repository(
        {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    )
    flags = ("--max-tokens", "5", "--budget", "32")
    done = h2o("run", "Once", "-m", "some/stories", *flags)
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


# -- what does not


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Ended as an error of a model does, with these words and without a traceback."""
    assert done.returncode == ExitCode.MODEL, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(words in done.stderr for words in said), done.stderr


def test_gated_without_a_token(hub: Hub, here: Call, tmp_path: Path) -> None:
    hub.repositories["some/gated"] = repository(weights(), gated=True)
    done = here("run", "hi", "-m", "some/gated")
    refused(done, "is gated", "no token was found", f"Accept it at {hub.url}/some/gated")
    refused(done, "HF_TOKEN", str(tmp_path / "hf" / "token"))


def test_gated_with_a_token_that_has_no_access(hub: Hub, here: Call) -> None:
    hub.repositories["some/gated"] = repository(weights(), gated=True)
    done = here("models", "pull", "some/gated", HF_TOKEN="hf_secret")
    refused(done, "is gated", "the token that was found has no access yet")
    assert "hf_secret" not in done.stderr


def test_unknown_repository(hub: Hub, here: Call) -> None:
    refused(here("models", "pull", "huggylama/llama-7b"), "No model 'huggylama/llama-7b' on the hub")


def test_forbidden(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), status=403)
    refused(
        here("models", "pull", "some/model", HF_TOKEN="hf_secret"), "refuses some/model (403)", "HF_TOKEN"
    )


def test_too_many_requests(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), status=429)
    refused(here("models", "pull", "some/model"), "too many requests", "in 7 seconds")
    # The hub's own library asks once in a process for something else.
    assert len([path for _, path, _ in hub.requests if "some/model" in path]) == 1


def test_a_hub_in_trouble(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), status=503)
    refused(here("models", "pull", "some/model"), "answers 503", "later")


def test_a_download_that_is_refused(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), refuse_files=404)
    refused(here("models", "pull", "some/model"), "some/model")


def test_no_safetensors(hub: Hub, here: Call) -> None:
    model = repository(weights())
    del model.files["model.safetensors"]
    hub.repositories["some/model"] = model
    refused(here("models", "pull", "some/model"), "no safetensors weights", "pytorch_model.bin is pickle")


def test_no_configuration(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = Repository({"model.gguf": b""})
    refused(here("models", "pull", "some/model"), "no config.json")


def test_unsupported_family_before_any_weight(hub: Hub, here: Call) -> None:
    model = repository(weights())
    model.files["config.json"] = json.dumps({"model_type": "falcon"}).encode()
    hub.repositories["some/falcon"] = model
    refused(here("models", "pull", "some/falcon"), "FalconForCausalLM is not supported")
    assert not hub.downloads("model.safetensors")


def test_disk_full_is_said_first(hub: Hub, here: Call) -> None:
    model = repository(weights(), sizes={"model.safetensors": 10**15})
    hub.repositories["some/model"] = model
    refused(here("models", "pull", "some/model"), "needs 1000000.0 GB more", "HF_HOME")
    assert not hub.downloads("model.safetensors")


def test_damaged_on_the_way(hub: Hub, here: Call, tmp_path: Path) -> None:
    model = repository(weights(), hashes={"model.safetensors": "0" * 64})
    hub.repositories["some/model"] = model
    refused(here("models", "pull", "some/model"), "arrived damaged")
    assert not list((tmp_path / "hf" / "hub").rglob("*.incomplete"))


@pytest.mark.parametrize(
    ("file", "resumed", "chunked"),
    [
        ("model.safetensors", False, False),
        ("model.safetensors", True, False),
        ("model.safetensors", True, True),
        ("tokenizer.json", False, True),
        ("tokenizer.json", True, False),
        ("config.json", False, False),
    ],
)
def test_more_than_was_listed(
    hub: Hub, here: Call, tmp_path: Path, file: str, resumed: bool, chunked: bool
) -> None:
    """No more is written than was listed, from the beginning or from where a download broke off."""
    model = repository(weights(), more={file: 128 * MIB}, chunked=chunked)
    hub.repositories["some/model"] = model
    blobs = tmp_path / "hf" / "hub" / "models--some--model" / "blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{hash_of(model, file)}.incomplete"
    part.write_bytes(model.files[file][: len(model.files[file]) // 2 if resumed else 0])
    done = here("models", "pull", "some/model")
    listed = f"{len(model.files[file]):,}"
    refused(done, f"{file} of some/model is larger than the {listed} bytes that the hub lists", "thrown away")
    assert not list(blobs.glob(f"{hash_of(model, file)}*")), "what is too large is removed"
    assert hub.sent.get(file, 0) < 64 * MIB, "it was not read to its end"

    model.more.clear()
    assert here("models", "pull", "some/model").returncode == ExitCode.OK
    assert (snapshot(tmp_path, "some/model") / file).read_bytes() == model.files[file]


def test_a_part_that_is_too_large_already(hub: Hub, here: Call, tmp_path: Path) -> None:
    model = hub.repositories["some/model"] = repository(weights())
    blobs = tmp_path / "hf" / "hub" / "models--some--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hash_of(model, 'model.safetensors')}.incomplete").write_bytes(bytes(3 * MIB))
    assert here("models", "pull", "some/model").returncode == ExitCode.OK
    assert hub.downloads("model.safetensors") == [""]


def test_a_small_file_that_is_damaged_on_the_way(hub: Hub, here: Call, tmp_path: Path) -> None:
    hub.repositories["some/model"] = repository(weights(), hashes={"tokenizer.json": "0" * 40})
    refused(here("models", "pull", "some/model"), "tokenizer.json of some/model arrived damaged")
    assert not list((tmp_path / "hf" / "hub").rglob("*.incomplete"))


def test_weights_that_would_lie_elsewhere(hub: Hub, here: Call, tmp_path: Path) -> None:
    model = hub.repositories["some/model"] = repository(b"")
    del model.files["model.safetensors"]
    name = "../../../../x.safetensors"
    model.files[name] = weights()
    model.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": name}}).encode()
    refused(here("models", "pull", "some/model"), "lacks weights that its index names")
    assert not list(tmp_path.rglob("x.safetensors"))


def test_a_hash_that_would_be_a_path(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), hashes={"model.safetensors": "../" * 21 + "x"})
    refused(here("models", "pull", "some/model"), "impossible hash")


def moment_s(here: Call) -> float:
    """How long the program takes here and now to say what is wrong with its arguments."""
    start = time.monotonic()
    assert here("run", "hi", "--budget", "0").returncode == ExitCode.USAGE
    return time.monotonic() - start


def test_offline_by_wish_is_said_at_once(hub: Hub, h2o: Call) -> None:
    moment, start = moment_s(h2o), time.monotonic()
    done = h2o("run", "hi", "-m", "llama-7b", HF_HUB_OFFLINE="1")
    refused(done, "No model 'huggyllama/llama-7b' on this machine", "HF_HUB_OFFLINE", "models pull")
    assert time.monotonic() - start < 4 + 4 * moment, "a second where nothing else runs"
    assert not hub.requests


def test_a_mistyped_path_is_no_reason_to_wait(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks like org/name; what lies beside it is said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "stories").mkdir(parents=True)
    (tmp_path / "mine" / "stories" / "config.json").write_text("{}")
    done = here("run", "hi", "-m", "mine/storys", HF_HUB_OFFLINE="1")
    refused(done, "No model 'mine/storys'", "Did you mean mine/stories?")


def test_no_connection_is_tried_once(h2o: Call) -> None:
    moment, start = moment_s(h2o), time.monotonic()
    done = h2o("run", "hi", "-m", "llama-7b", HF_ENDPOINT="http://127.0.0.1:9")
    refused(done, "the hub cannot be reached", "huggyllama/llama-7b")
    assert time.monotonic() - start < 6 + 6 * moment, "and not for half a minute"


def test_unknown_name_never_asks(hub: Hub, here: Call) -> None:
    refused(here("run", "hi", "-m", "lama-7b"), "No model 'lama-7b'", "Did you mean llama-7b")
    refused(here("models", "info", "qwertz"), "No model 'qwertz'")
    assert not hub.requests


def test_disk_full_in_the_middle() -> None:
    with pytest.raises(ModelError, match=r"The disk of .* is full") as caught, refusals.explained("a/b"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "it goes on where it stopped" in caught.value.hint


# -- packed weights


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


# -- around it


def test_removing(hub: Hub, here: Call, tmp_path: Path) -> None:
    hub.repositories["some/model"] = repository(weights())
    here("models", "pull", "some/model")
    asked = here("models", "rm", "some/model")
    assert asked.returncode == ExitCode.USAGE
    assert "--yes" in asked.stderr
    assert snapshot(tmp_path, "some/model").is_dir()
    assert here("models", "rm", "model", "--yes").stdout == "Removed some/model.\n"
    assert not snapshot(tmp_path, "some/model").exists()
    refused(here("models", "rm", "some/model", "--yes"), "nothing to remove")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("answer", "gone"), [(b"\n", False), (b"y\n", True)])
def test_removing_is_asked_on_a_terminal(
    environment: dict[str, str], tmp_path: Path, answer: bytes, gone: bool
) -> None:
    root = tmp_path / "hf" / "hub" / "models--some--model"
    (root / "blobs").mkdir(parents=True)
    (root / "blobs" / "x").write_bytes(bytes(3000))
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [*PROGRAM, "models", "rm", "some/model"]
    done = subprocess.run(command, env=environment, stdin=theirs, stderr=theirs, timeout=60, check=False)
    said = os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert b"Remove some/model (3 kB) from" in said
    assert done.returncode == ExitCode.OK
    assert root.exists() is not gone


def test_a_folder_of_ones_own_is_not_removed(here: Call, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    refused(here("models", "rm", str(tmp_path), "--yes"), "Folders of your own are yours to delete")
    assert (tmp_path / "config.json").is_file()


@pytest.mark.parametrize("by", ["path", "alias"])
def test_a_folder_is_not_taken_for_a_fetched_model_of_its_name(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """`models rm ./models/gpt2` removed the `gpt2` of the cache."""
    mine, fetched = tmp_path / "models" / "gpt2", tmp_path / "hf" / "hub" / "models--gpt2"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text("{}")
    (fetched / "blobs").mkdir(parents=True)
    (tmp_path / "config" / "h2o-chat").mkdir(parents=True)
    (tmp_path / "config" / "h2o-chat" / "config.toml").write_text(
        f"[aliases]\nmine = {json.dumps(str(mine))}"
    )
    monkeypatch.chdir(tmp_path)
    name = {"path": "./models/gpt2", "alias": "mine"}[by]
    refused(here("models", "rm", name, "--yes"), f"{name} is the folder {mine}", "yours to delete")
    assert fetched.is_dir()
    assert mine.is_dir()


def test_the_list_says_what_fits(here: Call) -> None:
    done = here("models")
    assert done.returncode == ExitCode.OK
    assert re.search(r"llama-7b +13\.5 GB +4\.2 GB +2,048 .* huggyllama/llama-7b\n", done.stdout)
    assert re.search(r"pocket +\d+ MB\n", done.stdout)
    assert "gated" in done.stdout
    assert done.stderr == ""


def test_names_complete_in_the_shell(here: Call) -> None:
    words = {
        "_H2O_CHAT_COMPLETE": "complete_bash",
        "COMP_WORDS": "h2o-chat models info tinyl",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from h2o_chat.cli.cli import main; main()"],
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["tinyllama"]
