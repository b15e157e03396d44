"""The library on emulated ARM processors, with and without dot products: the same bits as here.

Needs QEMU's `qemu-aarch64` and a compiler for ARM: `pip install --group wheels` brings one.
"""

import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_chat.native import build

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.sweep,  # a minute: `test_safety.py` compares the forms of this machine's processor
    pytest.mark.timeout(1800),  # the first time zig compiles C++'s own library
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("qemu-aarch64"), reason="needs Linux and qemu-aarch64"
    ),
]

ARM = build.Target("Linux", "aarch64")
PLAIN = build.Target("Linux", "any")  # a target without forms, which is quick to compile

FOLDER = Path(__file__).parent

DOT_PRODUCT = """
#include <arm_neon.h>
int main() { return vgetq_lane_s32(vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(1), vdupq_n_s8(1)), 0) - 4; }
"""


def compiler() -> str:
    """For $CXX, of programs that need no library of the system."""
    if shutil.which("aarch64-linux-gnu-g++"):
        return "aarch64-linux-gnu-g++"
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs a compiler for ARM: pip install --group wheels, or aarch64-linux-gnu-g++")
    return shlex.join([sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl"])


def every_function(folder: Path, target: build.Target, *flags: str) -> Path:
    """`every_function.cpp` with the library for this processor."""
    objects = map(str, build.compile_sources(folder, target=target))
    sources = (str(FOLDER / "every_function.cpp"), str(FOLDER / "angles.cpp"))
    command = [*build.compiler(), "-O1", "-std=c++17", "-pthread", "-ffp-contract=off", *flags]
    build.run([*command, f"-I{build.SOURCES}", *sources, *objects, "-o", str(folder / "every_function")])
    return folder / "every_function"


def forms(*command: str) -> dict[str, str]:
    """The digest of all results, by form."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the plain form on this machine."""
    return forms(str(every_function(tmp_path_factory.mktemp("here"), PLAIN)))["plain"]


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `every_function` and `dot_product` for ARM."""
    folder = tmp_path_factory.mktemp("arm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler())
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(Path("~/.cache/zig").expanduser()))  # and keeps it there
        (folder / "nothing.cpp").write_text(
            "#include <string>\nint main() { return std::string().size(); }\n"
        )
        nothing = [str(folder / "nothing.cpp"), "-o", str(folder / "nothing")]
        # On a busy machine it takes longer than a build may (`build.LIMIT_S`).
        subprocess.run([*build.compiler(), "-pthread", "-static", *nothing], check=True)
        every_function(folder, ARM, "-static")
        (folder / "dot_product.cpp").write_text(DOT_PRODUCT)
        flags = build.form_flags(build.compiler(), "step_neon", ARM)
        source, program = str(folder / "dot_product.cpp"), str(folder / "dot_product")
        build.run([*build.compiler(), "-O1", "-static", *flags, source, "-o", program])
    return folder


@pytest.mark.parametrize(
    ("processor", "expected"), [("neoverse-n1", ["plain", "NEON"]), ("cortex-a53", ["plain"])]
)
def test_every_form_gives_the_bits_of_this_machine(
    processor: str, expected: list[str], arm: Path, here: str
) -> None:
    """A processor without dot products kills a program that has one, so what runs there has none."""
    emulated = ("qemu-aarch64", "-cpu", processor)
    dot_product = subprocess.run([*emulated, str(arm / "dot_product")], capture_output=True, timeout=60)
    assert (dot_product.returncode == 0) == ("NEON" in expected)
    assert forms(*emulated, str(arm / "every_function")) == dict.fromkeys(expected, here)
