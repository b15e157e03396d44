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
    refused(here("models", "pull", "some/falcon"), "falcon is not supported")
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
    refused(here("models", "pull", "some/model"), "which is no file beside it")
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
    with pytest.raises(ModelError, match=r"The disk of .* is full") as caught, hub_errors.explained("a/b"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "it goes on where it stopped" in caught.value.hint
