"""The library under sanitizers, and what a processor without AVX2 would be given to run.

`every_function.cpp` calls all of it. It fails too where forms, threads or rows do not agree bit for bit.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_chat.native import build

pytestmark = pytest.mark.compiler

PROGRAM = Path(__file__).with_name("every_function.cpp")
ANGLES = Path(__file__).with_name("angles.cpp")

compiles_anew = pytest.mark.sweep
"""All sources are compiled again, which takes half a minute: it shows nothing new until one has changed."""

SANITIZERS = {
    "address": "-fsanitize=address,undefined,float-cast-overflow,float-divide-by-zero",
    "thread": "-fsanitize=thread -DH2O_THREADS_ALONE",
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The object files of the library as it is shipped."""
    return {path.stem: path for path in build.compile_sources(tmp_path_factory.mktemp("objects"))}


@pytest.fixture(scope="module")
def every_function(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the library as it is shipped: the one that was made, where that can be linked."""
    folder = tmp_path_factory.mktemp("every_function")
    if sys.platform == "linux" and build.is_current():
        return program([build.LIBRARY], folder)
    return program(build.compile_sources(folder), folder)


def program(library: list[Path], folder: Path, more: tuple[str, ...] = ()) -> Path:
    """`every_function.cpp` in this folder, linked to the library, or to the objects that it is made of."""
    to = folder / "every_function"
    flags = ("-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{build.SOURCES}", "-pthread", *more)
    files = (str(PROGRAM), str(ANGLES), *map(str, library))
    build.run([*build.compiler(), *flags, *files, "-o", str(to)])
    return to


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_forms_threads_and_rows_agree_bit_for_bit(every_function: Path) -> None:
    done = run(str(every_function))
    assert (done.returncode, done.stderr) == (0, "")
    forms = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert "plain" in forms
    assert len(set(forms.values())) == 1, forms


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_fewer_threads_where_the_system_gives_no_more(every_function: Path) -> None:
    done = run(str(every_function), "little memory")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "computed with little memory\n")


@compiles_anew
@pytest.mark.timeout(1200)  # two minutes alone, four times that on a machine that is busy with other tests
@pytest.mark.parametrize("which", ["address", "thread"])
def test_under_a_sanitizer(which: str, tmp_path: Path) -> None:
    """Not optimised: everything that the sources say is done. With threads a little: it takes minutes."""
    optimised = "-O1" if which == "thread" else "-O0"
    flags = (*SANITIZERS[which].split(), "-DH2O_SANITIZED", "-fno-sanitize-recover=all", optimised, "-g")
    (tmp_path / "nothing.cpp").write_text("int main() {}")
    try:
        command = [*build.compiler(), *flags, str(tmp_path / "nothing.cpp"), "-o", str(tmp_path / "nothing")]
        build.run(command)
    except build.BuildError as error:
        pytest.skip(f"the compiler has no {which} sanitizer: {str(error).splitlines()[-1]}")
    steady = ["setarch", "-R"] if shutil.which("setarch") else []  # both need known addresses
    if (done := run(*steady, str(tmp_path / "nothing"))).returncode:
        pytest.skip(f"the {which} sanitizer does not run here: {done.stderr}")
    done = run(*steady, str(program(build.compile_sources(tmp_path, flags), tmp_path, flags)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plain ")


def test_every_form_has_every_function() -> None:
    """A missing function is a null pointer, which a compiler for another processor does not report."""
    files = [file.read_text("utf-8") for file in build.SOURCES.glob("step_*.cpp")]
    assert len(files) == 5
    assert len({file.partition(" = ")[2] for file in files}) == 1


def with_vex(file: Path) -> list[str]:
    """Instructions of AVX and later, of BMI too: in 64 bits only those begin with C4, C5 or 62."""
    lines = run("objdump", "-d", "--insn-width=16", str(file)).stdout.splitlines()
    first = re.compile(r"\s*[0-9a-f]+:\t(?:(?:64|65|67) )*(?:c4|c5|62) ")
    return [line for line in lines if first.match(line)]


x86 = pytest.mark.skipif(
    build.HERE.forms is not build.X86_FORMS or not shutil.which("objdump"),
    reason="needs x86-64, and objdump to read its code",
)


@compiles_anew
@x86
@pytest.mark.parametrize("name", ["h2o", "pool", "step_plain"])
def test_what_every_processor_runs_has_no_newer_instructions(name: str, objects: dict[str, Path]) -> None:
    assert with_vex(objects[name]) == []


@compiles_anew
@x86
@pytest.mark.parametrize("name", list(build.X86_FORMS))
def test_the_other_forms_have_them(name: str, objects: dict[str, Path]) -> None:
    """This shows that the test above can fail."""
    assert any("%ymm" in line or "%zmm" in line for line in with_vex(objects[name]))


@compiles_anew
@pytest.mark.skipif(
    not build.HERE.forms or not shutil.which("nm"), reason="needs forms beside the plain one, and nm"
)
def test_no_function_of_a_form_can_be_taken_for_that_of_another(objects: dict[str, Path]) -> None:
    """The linker takes any of several weak functions (templates, inline) of one name, even with AVX-512."""

    def weak(name: str) -> list[str]:
        lines = run("nm", "-C", "--defined-only", str(objects[name])).stdout.splitlines()
        return [line for line in lines if line.split(maxsplit=2)[1] in "WVuwv"]

    assert {name: weak(name) for name in build.HERE.forms} == {name: [] for name in build.HERE.forms}


@compiles_anew
def test_the_sources_give_no_warnings(tmp_path: Path) -> None:
    """Those that need optimising are left out: GCC 12 warns of its own headers for AVX-512, wrongly."""
    build.compile_sources(tmp_path, ("-Werror", "-fsyntax-only"))


def test_every_function_is_called() -> None:
    header, calls = (build.SOURCES / "h2o.h").read_text(), PROGRAM.read_text()
    functions = re.findall(r"^H2O_API [\w ]+\*?\b(h2o_\w+)\(", header, re.MULTILINE)
    assert len(functions) > 10
    assert [name for name in functions if not re.search(rf"\b{name}\(", calls)] == []
