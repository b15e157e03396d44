"""Models that ollama keeps: found by name, never changed."""

import json
import os
from pathlib import Path

import pytest
from gguf_files import write
from ollama_store import keep

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.models import ollama
from h2o_chat.models.gguf_tokenizer import require_template
from h2o_chat.models.resolve import LocalModel, find, look_up, names_starting_with


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ollama keeps its models; nothing is there yet."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "ollama"


def listed(root: Path) -> list[tuple[str, int, int]]:
    """Every file of the store, with size and time."""
    found = [(path, path.stat()) for path in sorted(root.rglob("*"))]
    return [(str(path), about.st_size, about.st_mtime_ns) for path, about in found]


@pytest.mark.parametrize(
    ("where", "tag", "name", "shown"),
    [
        ("registry.ollama.ai/library", "latest", "ollama:tiny", "ollama:tiny"),
        ("registry.ollama.ai/library", "latest", "ollama:tiny:latest", "ollama:tiny"),
        ("registry.ollama.ai/library", "1b-q8_0", "ollama:tiny:1b-q8_0", "ollama:tiny:1b-q8_0"),
        ("registry.ollama.ai/somebody", "v1", "ollama:somebody/tiny:v1", "ollama:somebody/tiny:v1"),
        ("hf.co/org", "Q8_0", "ollama:hf.co/org/tiny:Q8_0", "ollama:hf.co/org/tiny:Q8_0"),
        ("localhost:5000/org", "latest", "ollama:localhost:5000/org/tiny", "ollama:localhost:5000/org/tiny"),
    ],
)
def test_names(where: str, tag: str, name: str, shown: str, root: Path, file: Path) -> None:
    keep(root, file, "tiny", tag, where)
    found = find(name)
    assert found.name == shown
    assert found.folder.read_bytes() == file.read_bytes()
    assert [one.name for one in ollama.installed()] == [shown]
    assert shown in names_starting_with("ollama:")


@pytest.mark.parametrize(
    "name",
    [
        *("", ":", "x:", "/x", "a/b/c/d", "../x", "x:../../y", "x/../y", ".x"),
        *("x\0y", "x\x1b[2J", "x y", "x" * 200),
    ],
)
def test_what_can_be_no_name(name: str, root: Path) -> None:
    with pytest.raises(ModelError) as caught:
        find(f"ollama:{name}")
    assert caught.value.message.startswith(("No model", "'ollama:", '"ollama:'))
    assert "\x1b" not in str(caught.value)


def test_what_is_not_there(root: Path, file: Path) -> None:
    with pytest.raises(ModelError, match="Fetch it: ollama pull tiny"):
        find("ollama:tiny")
    keep(root, file, "other")
    with pytest.raises(ModelError, match="There are: ollama:other"):
        find("ollama:tiny")


def test_the_usual_places(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own models, then those of ollama's Linux service."""
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    service = Path("/usr/share/ollama/.ollama/models")
    assert ollama.models_folders() == [Path.home() / ".ollama" / "models", service]
    own, other = tmp_path / "own", tmp_path / "service"
    monkeypatch.setattr(ollama, "PLACES", (str(own), str(other)))
    keep(other, file, "both", params='{"top_k": 7}')
    keep(other, file, "theirs", params='{"top_k": 7}')
    keep(own, file, "both")
    assert [one.name for one in ollama.installed()] == ["ollama:both", "ollama:theirs"]
    assert [find(f"ollama:{one}").folder.parents[1] for one in ("both", "theirs")] == [own, other]
    assert ollama.params_of("ollama:both") is None
    assert ollama.params_of("ollama:theirs") is not None


def test_an_alias_may_lead_there(
    root: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(root, file)
    (tmp_path / "h2o-chat").mkdir()
    (tmp_path / "h2o-chat" / "config.toml").write_text('[aliases]\nmine = "ollama:tiny"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = look_up("mine")
    assert isinstance(found, LocalModel)
    assert found.name == "ollama:tiny"


def test_a_file_is_compared_with_its_name_once(root: Path, file: Path) -> None:
    keep(root, file)
    before = listed(root)
    blob = find("ollama:tiny").folder
    told: list[tuple[str, float | None]] = []
    ollama.check(blob, lambda *one: told.append(one))
    assert told[-1] == ("check", 1.0)
    told.clear()
    ollama.check(blob, lambda *one: told.append(one))
    assert told == [], "size, time and inode are those that were checked"
    ollama.check(blob, lambda *one: told.append(one), again=True)
    assert told
    assert listed(root) == before, "nothing in the store is changed"
    ollama.check(file, lambda *_: pytest.fail("it is no file of the store"))


def test_a_file_that_is_not_what_its_name_says(root: Path, file: Path) -> None:
    keep(root, file)
    blob = find("ollama:tiny").folder
    ollama.check(blob, lambda *_: None)
    raw = bytearray(blob.read_bytes())
    raw[-5] ^= 1
    blob.write_bytes(raw)
    os.utime(blob, (1, 1))
    for _ in range(2):
        with pytest.raises(ModelError, match=r"is damaged: its SHA-256 is [0-9a-f]{64}"):
            ollama.check(blob, lambda *_: None)


def test_it_is_checked_before_it_is_opened(root: Path, file: Path) -> None:
    from h2o_chat.native.native_model import open_model

    keep(root, file)
    blob = find("ollama:tiny").folder
    blob.write_bytes(blob.read_bytes() + b"\0")
    with pytest.raises(ModelError, match="SHA-256"):
        open_model(Settings(model="ollama:tiny"), lambda *_: None)


def test_its_template_is_not_jinja(root: Path, llama: Path, tmp_path: Path) -> None:
    file = write(llama, tmp_path / "bare.gguf", "Q8_0")
    keep(root, file, template="{{ if .System }}{{ .System }}{{ end }}{{ .Prompt }}")
    with pytest.raises(
        UsageError, match=r"without a chat template \(ollama's own are not Jinja, and not read\)"
    ):
        require_template(Settings(model="ollama:tiny"))
    require_template(Settings(model="ollama:tiny", template="chatml"))


def test_a_model_with_an_adapter(root: Path, file: Path) -> None:
    keep(root, file, adapter="LoRA")
    with pytest.raises(ModelError, match="has an adapter beside its weights"):
        find("ollama:tiny")


def test_a_model_that_is_not_whole(root: Path, file: Path) -> None:
    keep(root, file)
    find("ollama:tiny").folder.unlink()
    with pytest.raises(ModelError, match="is not whole"):
        find("ollama:tiny")


@pytest.mark.parametrize(
    "manifest",
    [
        *("", "[]", "null", "{}", '{"layers": 7}', '{"layers": [7]}', '{"layers": [{}]}', "[" * 100_000),
        json.dumps({"layers": [{"mediaType": "x", "digest": "sha256:../../../etc/passwd", "size": 1}]}),
        json.dumps({"layers": [{"mediaType": "x", "digest": 7, "size": 1}]}),
        json.dumps({"layers": [{"mediaType": [], "digest": "sha256:" + "a" * 64, "size": 1}]}),
        json.dumps({"layers": [{"mediaType": "x", "digest": "sha256:" + "a" * 64, "size": -1}]}),
        json.dumps({"layers": [{"mediaType": "x", "digest": "sha256:" + "a" * 64, "size": 1e300}]}),
    ],
    ids=lambda one: one[:20],
)
def test_damaged_manifests(manifest: str, root: Path, file: Path) -> None:
    keep(root, file).write_text(manifest)
    with pytest.raises(ModelError, match="is damaged: it is no manifest of a model"):
        find("ollama:tiny")
    [one] = ollama.installed()
    assert "is damaged" in one.wrong


def test_strange_things_in_the_store(root: Path, file: Path) -> None:
    keep(root, file)
    manifests = root / "manifests"
    (manifests / "round").symlink_to(manifests)
    (manifests / "registry.ollama.ai" / "library" / "tiny" / "\x1b[2J").write_text("{}")
    (manifests / "registry.ollama.ai" / "library" / "tiny" / "folder").mkdir()
    os.mkfifo(manifests / "registry.ollama.ai" / "library" / "tiny" / "pipe")
    assert [one.name for one in ollama.installed()] == ["ollama:tiny"]
