"""Names: a folder, an alias, org/name, the only fetched model called so; and what is said of the others."""

import json
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
from storing import created
from tiny_models import FAMILIES
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.chat.conversation.opening import _lasting
from h2o_chat.cli.cli import app
from h2o_chat.models import resolve
from h2o_chat.models.aliases import ALIASES
from h2o_chat.models.here import models_here, spelled_out
from h2o_chat.models.resolve import HubModel, LocalModel
from h2o_chat.store import Store

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no configuration, whatever the machine has."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "settings" / name)
    return tmp_path / "hub"


def model_in(folder: Path) -> Path:
    """A folder with the least files of a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def fetched(cache: Path, repository: str, *, weights: bool = True) -> Path:
    """A repository as huggingface_hub leaves it."""
    root = cache / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    folder = model_in(root / "snapshots" / COMMIT)
    if weights:
        (folder / "model.safetensors").touch()
    return folder


def configure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings" / "h2o-chat" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_folder(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "mine")
    assert resolve.look_up(str(folder)) == LocalModel("mine", folder)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model_in(tmp_path / "mine")
    assert resolve.find("~/mine").folder == tmp_path / "mine"


def test_alias(cache: Path) -> None:
    assert resolve.look_up("Llama-7B") == HubModel("huggyllama/llama-7b")
    folder = fetched(cache, "huggyllama/llama-7b")
    assert resolve.look_up("llama-7b") == LocalModel("huggyllama/llama-7b", folder, COMMIT)


def test_org_and_name(cache: Path) -> None:
    assert resolve.look_up("nobody/nothing") == HubModel("nobody/nothing")
    folder = fetched(cache, "nobody/nothing")
    assert resolve.find("nobody/nothing") == LocalModel("nobody/nothing", folder, COMMIT)


def test_what_only_one_fetched_model_is_called(cache: Path) -> None:
    first = fetched(cache, "someone/Tiny-Stories")
    assert resolve.find("tiny-stories").folder == first
    assert resolve.find("stories").folder == first
    second = fetched(cache, "other/stories")
    assert resolve.find("stories").folder == second, "called so, not only containing it"
    fetched(cache, "third/stories")
    with pytest.raises(ModelError, match="could be 2 of the models") as caught:
        resolve.look_up("stories")
    assert "other/stories, third/stories" in caught.value.hint


def test_a_folder_comes_before_an_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama-7b").mkdir()
    assert isinstance(resolve.look_up("llama-7b"), HubModel), "an empty folder is no model"
    model_in(tmp_path / "tinyllama")
    assert isinstance(resolve.look_up("tinyllama"), LocalModel)


def test_the_users_own_aliases(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "far" / "away")
    configure(tmp_path, f'[aliases]\nMine = "{folder}"\ngpt2 = "someone/else"\nbad = "nothing"\nempty = ""\n')
    assert resolve.find("mine").folder == folder
    assert resolve.look_up("gpt2") == HubModel("someone/else")
    for name, target in (("bad", "nothing"), ("empty", "")):
        with pytest.raises(ModelError, match=f"leads to '{target}'"):
            resolve.look_up(name)


@pytest.mark.parametrize("text", ["[aliases", 'aliases = "x"', "[aliases]\na = 1"])
def test_broken_configuration(tmp_path: Path, text: str) -> None:
    configure(tmp_path, text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        resolve.look_up("a")


def test_files_in_the_users_folders_are_found_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "gguf" / "somebody"
    below.mkdir(parents=True)
    names = (
        "Tiny-1B-Q4_K_M.gguf",
        "Other-1B-Q8_0.gguf",
        "Big-00001-of-00002.gguf",
        "Big-00002-of-00002.gguf",
    )
    for name in names:
        (below / name).write_bytes(b"GGUF")
    configure(tmp_path, f"[defaults]\nmodel_folders = ['{tmp_path / 'gguf'}']\n")
    for name in ("Tiny-1B-Q4_K_M.gguf", "tiny-1b-q4_k_m", "tiny"):
        assert resolve.look_up(name) == LocalModel("Tiny-1B-Q4_K_M.gguf", below / names[0])
    with pytest.raises(ModelError, match="There is no file"):
        resolve.look_up("models/Nothere.gguf")
    with pytest.raises(ModelError, match="No model '1b'"):
        resolve.look_up("1b")
    with pytest.raises(ModelError) as error:
        resolve.look_up("tiny-1b-q4_k_s")
    assert "Tiny-1B-Q4_K_M.gguf" in (error.value.hint or "")
    monkeypatch.setenv("HOME", str(tmp_path))
    used = [str(below / names[1]), "~/gone.gguf", "ollama:gone"]
    found = models_here(used)
    assert [one.name for one in found][:3] == [names[1], names[2], names[0]], "the one used comes first"
    assert [(one.bytes, one.where) for one in found[1:3]] == [(8, "~/gguf/somebody"), (4, "~/gguf/somebody")]


def test_a_file_of_the_hubs_cache_has_the_name_of_its_link(tmp_path: Path) -> None:
    """Its parts too, which are found by their names; once in the list, however it was opened before."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    names = ("Tiny-00001-of-00002.gguf", "Tiny-00002-of-00002.gguf")
    for number, name in enumerate(names):
        (blobs / f"{number}a1b2c3").write_bytes(b"GGUF")
        (snapshot / name).symlink_to(f"../blobs/{number}a1b2c3")
    first = snapshot / names[0]
    configure(tmp_path, f"[defaults]\nmodel_folders = ['{snapshot}']\n")
    assert resolve.look_up("tiny") == LocalModel(names[0], first)
    assert resolve.look_up(str(first)) == LocalModel(names[0], first)
    assert _lasting(Settings(model=str(first)))["model"] == str(first)
    used = [str(blobs / "0a1b2c3"), str(first)]
    assert [one.name for one in models_here(used) if "gguf" in one.name.lower()] == [names[0]]


def test_what_is_no_file_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "Gone.gguf").symlink_to("nowhere")
    (tmp_path / "Folder.gguf").mkdir()
    (tmp_path / "Tiny.gguf").write_bytes(b"GGUF")
    configure(tmp_path, f"[defaults]\nmodel_folders = ['{tmp_path}']\n")
    for used in ([], [str(tmp_path / "Tiny.gguf")]):
        assert [one.name for one in models_here(used) if "gguf" in one.name] == ["Tiny.gguf"]


def test_two_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    files = [tmp_path / one / "Model.gguf" for one in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"GGUF")
    configure(tmp_path, f"[defaults]\nmodel_folders = ['{tmp_path}', '{tmp_path / 'a'}']\n")
    assert spelled_out("model", tmp_path / "data") == "model"
    with pytest.raises(ModelError, match="could be 2 files") as caught:
        resolve.look_up("model")
    assert caught.value.hint == f"Say which: {files[0]}, {files[1]}."
    assert [one.name for one in models_here() if "gguf" in one.name] == [*map(str, files)]
    files[1].unlink()
    assert resolve.look_up("model") == LocalModel("Model.gguf", files[0])


def test_a_repository_of_gguf_files_alone(cache: Path) -> None:
    """One file opens by the repository's name, several by their paths."""
    folder = fetched(cache, "x/Tiny-GGUF", weights=False)
    (folder / "config.json").unlink()
    names = ("Tiny-Q4-00001-of-00002.gguf", "Tiny-Q4-00002-of-00002.gguf", "mmproj-Tiny.gguf", "Tiny-Q8.gguf")
    files = [folder / name for name in names]
    for file in files[:3]:
        file.write_bytes(b"GGUF")
    for name in ("x/Tiny-GGUF", "tiny-gguf"):
        assert resolve.look_up(name) == LocalModel("x/Tiny-GGUF", files[0])
    listed = [(one.name, one.bytes) for one in models_here() if "Tiny" in one.name]
    assert listed == [("x/Tiny-GGUF", 8)]
    files[3].write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="could be 2 files") as caught:
        resolve.look_up("x/Tiny-GGUF")
    assert caught.value.hint == f"Say which: {files[0]}, {files[3]}."
    assert [one.name for one in models_here() if "Tiny" in one.name] == [str(files[0]), str(files[3])]
    done = CliRunner().invoke(app, ["models", "rm", "x/Tiny-GGUF", "--yes"])
    assert (done.exit_code, folder.exists()) == (0, False)


def test_a_file_used_before_and_those_beside_it_are_listed_and_found_by_name(tmp_path: Path) -> None:
    names = ("Used-1B-Q4.gguf", "Other-Q8.gguf", "Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf")
    used, other, big, later = (tmp_path / name for name in names)
    for file in (used, other, big, later):
        file.write_bytes(b"GGUF")
    store = Store(tmp_path / "data")
    created(store, "m", {"model": str(used)})
    store.close()
    assert [one.name for one in models_here([str(used)])][:3] == [str(used), str(big), str(other)]
    for name, meant in (("used-1b-q4.gguf", used), ("Used", used), ("other-q8", other), ("big", big)):
        assert spelled_out(name, tmp_path / "data") == str(meant)
    for name in ("q", "nothing", "org/Used", "pocket", str(later)):
        assert spelled_out(name, tmp_path / "data") == name


def test_half_a_download_is_not_a_model(cache: Path) -> None:
    folder = fetched(cache, "a/half", weights=False)
    index = folder / "model.safetensors.index.json"
    for text in ("{", "{}", json.dumps({"weight_map": {"x": "model-1.safetensors"}})):
        index.write_text(text)
        assert resolve.look_up("a/half") == HubModel("a/half")
    (folder / "model-1.safetensors").touch()
    assert isinstance(resolve.look_up("a/half"), LocalModel)


def test_no_name_is_the_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "BUNDLED", (tmp_path / "wheel", tmp_path / "checkout"))
    for name in (None, "pocket"):
        with pytest.raises(ModelError, match="No model is bundled"):
            resolve.find(name)
    model_in(tmp_path / "checkout")
    for name in (None, "pocket", "Pocket"):
        assert resolve.find(name).folder == tmp_path / "checkout"
    assert "pocket" in resolve.names_starting_with("po")
    with pytest.raises(ModelError) as caught:
        resolve.look_up("poket")
    assert "Did you mean pocket?" in caught.value.hint


def test_unknown_name_says_where_and_what_is_near(tmp_path: Path, cache: Path) -> None:
    model_in(tmp_path / "fairytales")
    fetched(cache, "someone/Wonderland")
    for wrong, right in (
        (str(tmp_path / "fairytale"), str(tmp_path / "fairytales")),
        ("wonderlant", "someone/Wonderland"),
        ("tinylama", "tinyllama? (fetch it: h2o-chat models pull tinyllama)"),
        ("gwen", "qwen2.5-0.5b-instruct or qwen2.5-1.5b-instruct or qwen2.5-3b-instruct?"),
    ):
        with pytest.raises(ModelError, match="No model") as caught:
            resolve.look_up(wrong)
        assert f"Did you mean {right}" in caught.value.hint
        assert str(cache) in caught.value.message
    with pytest.raises(ModelError) as caught:
        resolve.look_up("qqqqqq")
    assert "Did you mean" not in caught.value.hint
    assert "h2o-chat models" in caught.value.hint


@pytest.mark.parametrize("typed", ["smol-135m-q4_2.gguf", "smol-135m-q41.gguf", "smol-135m-q4_1"])
@pytest.mark.parametrize("inside", ["", "files", "some/files"])
def test_a_typo_in_a_files_name_leads_to_the_nearest_file(
    typed: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it reads like org/name, which would be fetched."""
    monkeypatch.chdir(tmp_path)
    folder = Path(inside)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "smol-135m-q4_1.gguf").write_bytes(b"GGUF")
    (folder / "another.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=f"There is no file .*{typed}. Did you mean .*smol-135m-q4_1.gguf"):
        resolve.look_up(str(folder / typed))
    assert resolve.look_up("files/something-else") == HubModel("files/something-else")


def test_known_but_not_here_says_how_to_get_it() -> None:
    with pytest.raises(ModelError, match="No model 'huggyllama/llama-7b' on this machine") as caught:
        resolve.find("llama-7b")
    assert "h2o-chat models pull huggyllama/llama-7b" in caught.value.hint


def test_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    here = tmp_path / "here"
    model_in(here / "inside")
    with pytest.raises(ModelError, match=r"no config\.json") as caught:
        resolve.look_up(str(here))
    assert "Models inside it: inside" in caught.value.hint
    (here / "model.gguf").touch()
    with pytest.raises(ModelError, match="GGUF"):
        resolve.look_up(str(here))
    with pytest.raises(ModelError, match="is a file"):
        resolve.look_up(str(here / "model.gguf"))
    for folder, hint in (
        (here, "h2o-chat models list --hub"),
        (here / "inside", f"Try its folder: {here / 'inside'}"),
    ):
        (folder / "notes.txt").touch()
        with pytest.raises(ModelError, match="is a file") as caught:
            resolve.look_up(str(folder / "notes.txt"))
        assert caught.value.hint.endswith(hint)


def test_names_of_the_table_can_be_typed_and_tell_models_apart() -> None:
    assert all(name == name.lower() and "/" not in name for name in ALIASES)
    assert len({alias.repository for alias in ALIASES.values()}) == len(ALIASES)
    assert {alias.family for alias in ALIASES.values()} <= FAMILIES.keys(), "stock transformers is equal"


def test_names_for_the_shell(cache: Path) -> None:
    fetched(cache, "llamas/mine")
    fetched(cache, "llamas/half", weights=False)
    names = resolve.names_starting_with("LLAMA")
    assert "llama-7b" in names
    assert "llamas/mine" in names
    assert "llamas/half" not in names
    assert "gpt2" not in names


def test_a_look_takes_a_moment(cache: Path) -> None:
    for number in range(100):
        fetched(cache, f"someone/model-{number}")
    code = (
        "import time, sys; import h2o_chat.models.resolve as r; r.find('model-42');"
        "heavy = {'torch', 'huggingface_hub', 'transformers'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else time.process_time() > 0.5)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
