"""`native/build.py`: the library is made from sources, once, in one move; or it is said why not."""

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from h2o_chat.native import build, library

SOURCE = """
extern "C" __attribute__((visibility("default"))) int number() {
#ifdef H2O_PLAIN_ONLY
    return -%(number)d;
#else
    return %(number)d;
#endif
}
"""
AVX2 = """
#ifndef __AVX2__
#error "compiled without its flags"
#endif
"""


@pytest.fixture
def small(tmp_path: Path) -> ModuleType:
    """build.py in a folder of its own, beside a source that compiles at once."""
    (tmp_path / "native" / "src").mkdir(parents=True)
    shutil.copy(build.__file__, tmp_path / "native" / "build.py")
    spec = importlib.util.spec_from_file_location("build_of_the_test", tmp_path / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    write(module, 7)
    return module


def write(small: ModuleType, number: int) -> None:
    (small.SOURCES / "h2o.cpp").write_text(SOURCE % {"number": number})


def left(small: ModuleType) -> set[str]:
    return {path.name for path in small.FOLDER.iterdir()} - {"build.py", "src", "__pycache__"}


@pytest.mark.compiler
def test_it_is_compiled_once(small: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert small.made() is None
    assert small.build() is None
    assert ctypes.CDLL(str(small.LIBRARY)).number() == 7
    assert left(small) == {small.LIBRARY.name}
    made = small.made()
    assert made.sources == small.digest()
    assert len(made.date) == len("2026-11-22")
    assert made.compiler
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert small.build() is None, "nothing is to be done"


@pytest.mark.compiler
def test_a_source_that_changed_is_compiled_again(small: ModuleType) -> None:
    """In one move: whoever has the old library open goes on with it."""
    small.build()
    before = ctypes.CDLL(str(small.LIBRARY))
    write(small, 8)
    assert not small.is_current()
    assert small.build() is None
    assert small.is_current()
    now = shutil.copy(small.LIBRARY, small.FOLDER / "another name")  # one name is opened once in a process
    assert (before.number(), ctypes.CDLL(str(now)).number()) == (7, 8)


@pytest.mark.compiler
def test_a_library_that_does_not_load_is_made_again(small: ModuleType) -> None:
    """For example one that was compiled from the same sources on a newer system."""
    small.LIBRARY.write_bytes(f"h2o_made {small.digest()} 2026-11-22 g++\0".encode())
    assert small.is_current()
    assert small.build() is None
    assert ctypes.CDLL(str(small.LIBRARY)).number() == 7


@pytest.mark.compiler
def test_a_failed_compile_is_said_and_kept(small: ModuleType) -> None:
    """The library of other sources goes: it might not fit the program any more."""
    small.build()
    (small.SOURCES / "h2o.cpp").write_text("this is no C++;\n")
    said = small.build()
    assert "h2o.cpp:1:1: error" in said
    assert left(small) == {small.FAILURE.name}
    assert small.failure() == said
    write(small, 9)
    assert small.build() is None
    assert left(small) == {small.LIBRARY.name}
    assert small.failure() == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, "There is no C++ compiler: none of c++, g++, clang++ is on PATH."),
        ("no-such-compiler -v", "There is no C++ compiler: $CXX is 'no-such-compiler', which is not there."),
    ],
)
def test_without_a_compiler(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str | None, said: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    if asked:
        monkeypatch.setenv("CXX", asked)
    assert small.build() == said
    assert small.failure() == said
    assert left(small) == {small.FAILURE.name}


@pytest.mark.compiler
def test_where_it_cannot_be_written_that_is_said(small: ModuleType) -> None:
    """A folder stands where the library belongs."""
    (small.LIBRARY / "something").mkdir(parents=True)
    assert "directory" in small.build().lower()
    assert left(small) == {small.LIBRARY.name}


@pytest.mark.compiler
@pytest.mark.skipif(build.HERE.forms is not build.X86_FORMS, reason="compiles the forms for x86-64")
def test_only_a_form_of_its_own_gets_flags_for_the_processor(small: ModuleType) -> None:
    """On other processors it is not compiled at all."""
    (small.SOURCES / "step_avx2.cpp").write_text(AVX2)
    (small.SOURCES / "pool.cpp").write_text(AVX2.replace("#ifndef", "#ifdef"))
    assert small.build() is None
    (small.SOURCES / "step_avx2.cpp").write_text("this is no C++")
    assert small.build(small.Target(platform.system(), "riscv64")) is None
    assert ctypes.CDLL(str(small.LIBRARY)).number() == -7


@pytest.mark.compiler
@pytest.mark.skipif(
    build.HERE.forms is not build.X86_FORMS or not sys.platform.startswith("linux"),
    reason="AMX is compiled for Linux on x86-64",
)
def test_a_compiler_that_knows_no_amx_compiles_the_rest(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    of_today = shutil.which(build.compiler()[0])
    older.write_text(f'#!/bin/sh\ncase "$*" in *-mamx*) exit 1;; esac\nexec {of_today} "$@"\n')
    older.chmod(0o755)
    said = '#ifdef H2O_NO_AMX\nextern "C" int without() { return 1; }\n#endif\n'
    (small.SOURCES / "h2o.cpp").write_text(said.replace("int", '__attribute__((visibility("default"))) int'))
    (small.SOURCES / "step_amx.cpp").write_text(
        said.replace("ifdef", "ifndef").replace("without", "with_amx")
    )
    monkeypatch.setenv("CXX", str(older))
    assert small.build() is None
    assert ctypes.CDLL(str(small.LIBRARY)).without() == 1
    small.LIBRARY.unlink()
    monkeypatch.delenv("CXX")
    assert small.build() is None
    names = small.LIBRARY.read_bytes()
    assert b"without" not in names
    assert b"with_amx" in names


@pytest.mark.compiler
def test_the_program_alone(small: ModuleType, tmp_path: Path) -> None:
    """With nothing but the standard library, as before an install."""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(small.FOLDER / "build.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)

    done = run(PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of c++, g++, clang++ is on PATH.\nEverything works without it, slower." in done.stderr
    done = run(**os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{small.LIBRARY} is up to date.\n"


@pytest.mark.compiler
def test_it_is_compiled_where_tests_run() -> None:
    """Tests that need it would otherwise be skipped unnoticed."""
    assert library.why_not() == "", f"run: {sys.executable} -m h2o_chat.native.build"
