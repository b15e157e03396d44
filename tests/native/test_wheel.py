"""Contents of a wheel and an sdist made by hatchling with `hatch_build.py`, with and without a compiler."""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from h2o_chat import __version__
from h2o_chat.native import build

ROOT = Path(__file__).parents[2]
NATIVE = "h2o_chat/native/"
LIBRARY, FAILURE = NATIVE + build.LIBRARY.name, NATIVE + build.FAILURE.name
SOURCES = {f"{NATIVE}src/{path.name}" for path in build.SOURCES.iterdir()}
HURRIED = "import subprocess, sys; sys.exit(subprocess.call([*sys.argv[1:], '-O0']))"
"""A compiler that does not optimise, whatever it is asked for; its arguments begin with the real one."""
ASSETS = tuple(f"h2o_chat/assets/{name}" for name in ("pocket/config.json", "demo.jsonl"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that goes into a package but what compiling left. The bundled model is a stand-in."""
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "h2o_chat", tree / "h2o_chat", ignore=shutil.ignore_patterns("_step.*", "__pycache__")
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "THIRD_PARTY.md", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    (tree / "assets" / "pocket").mkdir(parents=True)
    (tree / "assets" / "pocket" / "config.json").write_text("{}")
    shutil.copy(ROOT / "assets" / "demo.jsonl", tree / "assets")
    return tree


def made(tree: Path, what: str, **environment: str) -> Path:
    """The file that `build_wheel` or `build_sdist` makes, as pip calls it."""
    out = tree.parent / what
    program = f"from hatchling.build import {what}; {what}({str(out)!r})"
    known = {name: value for name, value in os.environ.items() if name != "CXX"}
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        env=known | environment,
        check=True,
        capture_output=True,
        timeout=200,
    )
    [file] = out.iterdir()
    return file


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def about(wheel: Path) -> str:
    """Its file WHEEL."""
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/WHEEL")]
        return file.read(name).decode()


@pytest.mark.compiler
def test_a_wheel_with_the_library_names_the_system(tree: Path) -> None:
    if build.is_current():  # then compiling again shows nothing more
        shutil.copy(build.LIBRARY, tree / LIBRARY)
    wheel = made(tree, "build_wheel")
    assert SOURCES | {LIBRARY, *ASSETS} <= names(wheel)
    assert FAILURE not in names(wheel)
    tag = wheel.name.removeprefix(f"h2o_chat-{__version__}-").removesuffix(".whl")
    assert tag.startswith("py3-none-")
    assert not tag.endswith("-any")
    assert sys.platform != "linux" or tag == f"py3-none-linux_{os.uname().machine}"
    assert f"Root-Is-Purelib: false\nTag: {tag}\n" in about(wheel)


def test_a_wheel_without_a_compiler_is_for_every_system(tree: Path, tmp_path: Path) -> None:
    """It tells why, and holds the sources; a library of other sources is not taken along."""
    (tree / LIBRARY).write_bytes(b"of other sources")
    wheel = made(tree, "build_wheel", PATH=str(tmp_path))
    assert wheel.name == f"h2o_chat-{__version__}-py3-none-any.whl"
    assert "Root-Is-Purelib: true\nTag: py3-none-any\n" in about(wheel)
    assert SOURCES | {FAILURE, *ASSETS} <= names(wheel)
    assert LIBRARY not in names(wheel)
    assert zipfile.ZipFile(wheel).read(FAILURE).startswith(b"There is no C++ compiler")


@pytest.mark.sweep  # the library is compiled again
@pytest.mark.compiler
def test_a_wheel_for_another_system_has_its_tag_and_its_library(tree: Path) -> None:
    """The compiler is that of this machine: it makes the plain form, under the name that Windows has."""
    compiler = shlex.join([sys.executable, "-c", HURRIED, *build.compiler()])
    wheel = made(tree, "build_wheel", H2O_CHAT_WHEEL_FOR="Windows riscv64 win_riscv64", CXX=compiler)
    assert wheel.name == f"h2o_chat-{__version__}-py3-none-win_riscv64.whl"
    assert {path for path in names(wheel) if path.startswith(NATIVE + "_step")} == {NATIVE + "_step.dll"}
    digest = build.digest(build.Target("Windows", "riscv64")).encode()
    assert b"h2o_made " + digest in zipfile.ZipFile(wheel).read(NATIVE + "_step.dll")


def test_an_sdist_holds_sources_alone(tree: Path) -> None:
    for left in (LIBRARY, FAILURE):
        (tree / left).write_text("left by compiling")
    with tarfile.open(made(tree, "build_sdist")) as file:
        found = {name.partition("/")[2] for name in file.getnames()}
    assert (
        SOURCES | {"hatch_build.py", NATIVE + "build.py", "assets/pocket/config.json", "assets/demo.jsonl"}
        <= found
    )
    assert not found & {LIBRARY, FAILURE}
