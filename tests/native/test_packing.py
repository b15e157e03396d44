"""Weights packed from safetensors: any family, type and number of files, and what can go wrong on the way."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import forking
import pytest
import torch
import transformers
from forking import Forked
from laid_out import bytes_at, weight
from making import Make, by_experts, silent
from safetensors.torch import load_file, save_file
from storing import ended
from torch import Tensor

from h2o_chat.base.errors import ModelError
from h2o_chat.native import packing
from h2o_chat.native.layout import Vector, parts
from h2o_chat.native.model_frame import FAMILIES
from h2o_chat.native.packed import Packed
from h2o_chat.native.packed_file import PackedError, packed_files
from h2o_chat.native.packing import Sources, packed_for

ALLOWED = {4: 0.1, 8: 0.008}  # relative error of a matrix of random weights

PACK = """
import ctypes, os, sys
os.environ["XDG_CACHE_HOME"] = {cache!r}
from pathlib import Path
from h2o_chat.base.errors import H2OChatError
from h2o_chat.native.packing import packed_for
{before}
try:
    packed = packed_for(Path(sys.argv[1]), 8, lambda *_: None)
    print("packed", len(ctypes.string_at(packed.vector("norm"), 160)) // 4)
except H2OChatError as error:
    print(error.code, error)
"""


def started(folder: Path, before: str = "") -> "subprocess.Popen[str]":
    """A process that packs a model."""
    code = PACK.format(before=before, cache=os.environ["XDG_CACHE_HOME"])
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Forked([sys.executable, "-c", code, str(folder)], env=forking.OUTSIDE, **streams, text=True)


def weights_of(folder: Path) -> dict[str, Tensor]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return by_experts(model.state_dict())


def assert_holds(packed: Packed, own: dict[str, Tensor]) -> None:
    """The packed file has the model's rounded numbers in the right order."""
    for part in parts(packed.frame):
        rows = [slice(one.start, one.start + one.rows) for one in part.sources]
        expected = torch.cat([own[one.name][some] for one, some in zip(part.sources, rows, strict=True)])
        expected = (expected.flatten() + part.plus) / part.over if isinstance(part, Vector) else expected
        found = weight(packed, part)
        assert found.shape == expected.shape
        if isinstance(part, Vector):
            assert torch.equal(found, expected), part.name
        else:
            error = (found - expected).norm(dim=1) / expected.norm(dim=1)
            assert float(error.max()) < 2 * ALLOWED[part.bits], part.name
            assert float((found - expected).norm() / expected.norm()) < ALLOWED[part.bits], part.name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("bits", "tied"), [(4, True), (8, False)])
def test_families(saved: Make, family: str, bits: int, tied: bool) -> None:
    folder = saved(family, tie_word_embeddings=tied)
    packed = packed_for(folder, bits, silent)
    assert (packed.frame.family, packed.frame.bits, packed.frame.tied) == (family, bits, tied)
    assert packed.note == ""
    assert_holds(packed, weights_of(folder))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types(saved: Make, dtype: torch.dtype) -> None:
    folder = saved(dtype=dtype)
    assert_holds(packed_for(folder, 8, silent), weights_of(folder))


def test_several_files(saved: Make) -> None:
    one, several = saved(name="one"), saved(name="several", shard="20KB")
    assert len(list(several.glob("*.safetensors"))) > 3
    first, second = (packed_for(folder, 4, silent) for folder in (one, several))
    assert first.path != second.path
    assert first.header.checks == second.header.checks


def test_names_without_the_head_of_the_model(saved: Make) -> None:
    """`LlamaModel.save_pretrained` writes `layers.0...`, not `model.layers.0...`."""
    folder = saved(tie_word_embeddings=True)
    own = weights_of(folder)
    file = folder / "model.safetensors"
    save_file({name.removeprefix("model."): one for name, one in load_file(file).items()}, file)
    assert_holds(packed_for(folder, 8, silent), own)


def test_large_matrices_are_read_in_blocks(saved: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(vocab_size=3000, intermediate_size=1000)
    whole = packed_for(folder, 4, silent).header.checks
    sizes: list[int] = []
    read = Sources.rows

    def rows(self: Sources, name: str, shape: tuple[int, ...], first: int, end: int) -> Tensor:
        found = read(self, name, shape, first, end)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(Sources, "rows", rows)
    monkeypatch.setattr(packing, "BLOCK_NUMBERS", 1024)
    packed_files()[0].path.unlink()
    assert packed_for(folder, 4, silent).header.checks == whole
    assert max(sizes) <= 16 * 1024, "16 rows of the widest matrix"


def test_progress(saved: Make) -> None:
    told: list[tuple[str, float | None]] = []
    packed_for(saved(), 4, lambda stage, share: told.append((stage, share)))
    assert {stage for stage, _ in told} == {"pack"}
    shares = [share for _, share in told if share is not None]
    assert len(shares) > 20
    assert all(one <= two for one, two in pairwise(shares))
    assert shares[-1] == 1


def test_a_second_start_packs_nothing_and_loads_no_weights(
    saved: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved()
    packed_for(folder, 4, silent)
    monkeypatch.setattr(packing, "pack", None)
    monkeypatch.setattr(packing, "frame_of", None)
    told: list[str] = []
    assert packed_for(folder, 4, lambda stage, _: told.append(stage)).frame.bits == 4
    assert told == []


# -- the model is wrong


DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda own: own.pop(DOWN), f"lacks the weights {DOWN}"),
        (lambda own: own.update({DOWN: own[DOWN][:, :8].clone()}), "[40, 8], config.json says [40, 72]"),
        (lambda own: own[DOWN].view(-1)[77:78].fill_(torch.nan), "holds NaN or infinity"),
        (lambda own: own.update({DOWN: own[DOWN].to(torch.float8_e4m3fn)}), "of the type F8_E4M3"),
    ],
)  # fmt: skip
def test_weights_that_are_not_those_of_the_configuration(
    saved: Make, cache: Path, change: Any, said: str
) -> None:
    folder = saved()
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError) as caught:
        packed_for(folder, 8, silent)
    assert said in caught.value.message
    assert list(cache.iterdir()) == []


# -- the disk


@pytest.mark.parametrize("asks", [True, False])
def test_a_full_disk(asks: bool, saved: Make, cache: Path) -> None:
    """Space is asked for beforehand, where the system can be asked."""
    limit = "import os, resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))\n"
    said = ended(started(saved(), limit if asks else limit + "del os.posix_fallocate"))
    assert "cannot be written: File too large. It takes" in said
    assert list(cache.iterdir()) == []


def test_a_folder_that_cannot_be_made(saved: Make, cache: Path) -> None:
    cache.parent.parent.mkdir()
    cache.parent.write_text("in the way")
    with pytest.raises(PackedError) as caught:
        packed_for(saved(), 8, silent)
    assert str(cache) in caught.value.message
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_folder_that_is_not_ours_to_write(saved: Make, cache: Path, tmp_path: Path) -> None:
    folder = saved()
    cache.mkdir(parents=True)
    for one in [folder, *folder.iterdir()]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    for one in (tmp_path, *tmp_path.parents[:3]):
        if one.stat().st_uid == os.geteuid():
            one.chmod(one.stat().st_mode | 0o055)
    cache.chmod(0o555)
    nobody = "import os\nif os.getuid() == 0: os.setuid(65534)  # root may write everywhere"
    said = ended(started(folder, nobody))
    assert "cannot be written: Permission denied" in said
    cache.chmod(0o755)


def test_killed_in_the_middle(saved: Make, cache: Path) -> None:
    """Nothing that it leaves is taken for a packed file, and the next one to pack removes it."""
    folder = saved()
    die = (
        "import os, signal\nfrom h2o_chat.native.packing import Sources\nread = Sources.rows\n"
        "def rows(self, name, *more):\n"
        "    if 'layers.2.mlp' in name: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return read(self, name, *more)\n"
        "Sources.rows = rows"
    )
    process = started(folder, die)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    (left,) = cache.iterdir()
    assert left.name.endswith(".part")
    packed = packed_for(folder, 8, silent)
    assert sorted(one.name for one in cache.iterdir()) == [packed.path.name, f"{packed.path.name}.checked"]


def test_what_somebody_else_is_writing_stays(saved: Make, cache: Path) -> None:
    """He waits in the middle until somebody else has packed the same model."""
    folder = saved()
    wait = (
        "import os, time\nfrom h2o_chat.native.packing import Sources\nread = Sources.rows\n"
        f"def rows(self, *more):\n    while not os.path.exists({str(folder / 'go')!r}): time.sleep(.01)\n"
        "    return read(self, *more)\n"
        "Sources.rows = rows"
    )
    process = started(folder, wait)
    give_up = time.monotonic() + 100
    while not list(cache.glob("*.part")) and time.monotonic() < give_up:
        time.sleep(0.01)
    first = packed_for(folder, 8, silent)
    assert len(list(cache.glob("*.part"))) == 1
    (folder / "go").touch()
    assert ended(process) == "packed 40\n"
    assert not list(cache.glob("*.part"))
    assert_holds(first, weights_of(folder))  # its file was replaced, and stays readable
    assert_holds(packed_for(folder, 8, silent), weights_of(folder))


def test_packed_by_somebody_else_meanwhile(saved: Make, cache: Path) -> None:
    """On Windows a file that another process has mapped is not replaced: it is as good."""
    folder = saved()
    windows = (
        "from h2o_chat.native import packing\npacking.MOVES_OPEN_FILES, replace = False, Path.replace\n"
        "def refused(part, path):\n    replace(part, path)\n    raise PermissionError\n"
        "Path.replace = refused"
    )
    assert ended(started(folder, windows)) == "packed 40\n"
    assert_holds(packed_for(folder, 8, silent), weights_of(folder))


# -- what is left of before


def test_weights_that_changed(saved: Make, cache: Path) -> None:
    """The packed files of those that lay there before go; those of other models stay."""
    other = packed_for(saved(name="other", seed=5), 8, silent)
    folder = saved()
    four, eight = packed_for(folder, 4, silent), packed_for(folder, 8, silent)
    assert len(packed_files()) == 3
    saved(seed=1)
    new = packed_for(folder, 8, silent)
    assert {one.path for one in packed_files()} == {new.path, other.path}
    assert not four.path.exists()
    assert len(list(cache.iterdir())) == 4, "what was noted of them is gone too"
    assert_holds(new, weights_of(folder))
    norms = [bytes_at(one.vector("norm"), 160) for one in (four, eight)]
    assert torch.equal(*norms), "what is open can be read"


def test_an_older_layout_goes(saved: Make) -> None:
    folder = saved()
    packed = packed_for(folder, 8, silent)
    old = packed.path.with_name(packed.path.name.replace("-1.h2o", "-0.h2o"))
    packed.path.rename(old)
    assert packed_for(folder, 8, silent).path.exists()
    assert not old.exists()
