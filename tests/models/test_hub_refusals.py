"""Refusals of the hub, and files that differ from their listing; on the loopback."""

import errno
import json
import time
from pathlib import Path

import pytest
from hub_server import Hub, Repository, hash_of
from pulled import MIB, Call, refused, repository, snapshot, weights

from h2o_chat.base.errors import ExitCode, ModelError
from h2o_chat.models import hub_errors

pytestmark = pytest.mark.loopback


def test_gated_without_a_token(hub: Hub, here: Call, tmp_path: Path) -> None:
    hub.repositories["some/gated"] = repository(weights(), gated=True)
    done = here("run", "hi", "-m", "some/gated")
    refused(done, "is gated", "no token was found", f"Accept it at {hub.url}/some/gated")
    refused(done, "HF_TOKEN", str(tmp_path / "hf" / "token"))


def test_unknown_repository(hub: Hub, here: Call) -> None:
    refused(here("models", "pull", "huggylama/llama-7b"), "No model 'huggylama/llama-7b' on the hub")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (repository(weights(), gated=True), ["is gated", "the token that was found has no access yet"]),
        (repository(weights(), status=403), ["refuses some/model (403)", "HF_TOKEN"]),
        (repository(weights(), status=429), ["too many requests", "in 7 seconds"]),
        (repository(weights(), status=503), ["answers 503", "later"]),
        (repository(weights(), refuse_files=404), ["some/model"]),
        (
            Repository({"config.json": b'{"model_type": "llama"}', "pytorch_model.bin": b""}),
            ["no safetensors weights", "pytorch_model.bin is pickle"],
        ),
        (Repository({"model.gguf": b""}), ["no config.json"]),
        (
            Repository({"config.json": b'{"model_type": "falcon"}', "model.safetensors": weights()}),
            ["falcon is not supported"],
        ),
        (
            repository(weights(), sizes={"model.safetensors": 10**15}),
            ["needs 1000000.0 GB more", "HF_HOME"],
        ),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_refused_before_any_weight(model: Repository, said: list[str], hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = model
    done = here("models", "pull", "some/model", HF_TOKEN="hf_secret")
    refused(done, *said)
    assert "hf_secret" not in done.stderr
    assert not hub.sent.get("model.safetensors")
    if model.status == 429:
        # The hub's own library asks once in a process for something else.
        assert len([path for _, path, _ in hub.requests if "some/model" in path]) == 1


def test_a_hash_that_would_be_a_path(hub: Hub, here: Call) -> None:
    hub.repositories["some/model"] = repository(weights(), hashes={"model.safetensors": "../" * 21 + "x"})
    refused(here("models", "pull", "some/model"), "impossible hash")


@pytest.mark.parametrize(("file", "wrong"), [("model.safetensors", "0" * 64), ("tokenizer.json", "0" * 40)])
def test_damaged_on_the_way(hub: Hub, here: Call, tmp_path: Path, file: str, wrong: str) -> None:
    hub.repositories["some/model"] = repository(weights(), hashes={file: wrong})
    refused(here("models", "pull", "some/model"), f"{file} of some/model arrived damaged")
    assert not list((tmp_path / "hf" / "hub").rglob("*.incomplete"))


def test_weights_that_would_lie_elsewhere(hub: Hub, here: Call, tmp_path: Path) -> None:
    model = hub.repositories["some/model"] = repository(weights())
    name = "../../../../x.safetensors"
    model.files[name] = model.files.pop("model.safetensors")
    model.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": name}}).encode()
    refused(here("models", "pull", "some/model"), "which is no file beside it")
    assert not list(tmp_path.rglob("x.safetensors"))


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


@pytest.mark.parametrize(
    ("asked", "within_s", "said"),
    [
        ({"HF_HUB_OFFLINE": "1"}, 4, ["No model 'huggyllama/llama-7b'", "HF_HUB_OFFLINE", "pull"]),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, 6, ["the hub cannot be reached", "huggyllama/llama-7b"]),
    ],
)
def test_a_hub_that_is_not_there_is_said_at_once(
    asked: dict[str, str], within_s: float, said: list[str], hub: Hub, h2o: Call
) -> None:
    """Measured by how long the program takes here and now to say what is wrong with its arguments."""
    start = time.monotonic()
    assert h2o("run", "hi", "--budget", "0").returncode == ExitCode.USAGE
    moment, start = time.monotonic() - start, time.monotonic()
    refused(h2o("run", "hi", "-m", "llama-7b", **asked), *said)
    assert time.monotonic() - start < within_s * (1 + moment), "and not after half a minute"
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


def test_unknown_name_never_asks(hub: Hub, here: Call) -> None:
    refused(here("run", "hi", "-m", "lama-7b"), "No model 'lama-7b'", "Did you mean llama-7b")
    refused(here("models", "info", "qwertz"), "No model 'qwertz'")
    assert not hub.requests


def test_disk_full_in_the_middle() -> None:
    with pytest.raises(ModelError, match=r"The disk of .* is full") as caught, hub_errors.explained("a/b"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "it goes on where it stopped" in caught.value.hint
