"""Fixtures that every test may use."""

import atexit
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forking
import pytest
from hypothesis import settings

from h2o_chat.models import smollm2
from h2o_chat.native import build
from h2o_chat.store import Store

# Until the tests are collected no garbage is looked for: that took a fifth of the time in each process.
gc.disable()

# A busy machine is not a failing test.
settings.register_profile("every behaviour once", deadline=None, max_examples=30)
settings.register_profile("with sweeps", deadline=None, max_examples=100)

# Tiny models gain nothing from threads, and lose much where others use the cores; before torch loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Where a test asks for more threads, they sleep while they wait: spinning takes the cores of other tests.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Where there is no GPU, Triton's kernels run under its interpreter; asked where they are defined.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Where the suite runs in the background of a script, interrupts are ignored, and under nohup hang-ups; what
# it starts must hear them.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# No test asks the hub; those in tests/models ask a stand-in on the loopback.
os.environ["HF_HUB_OFFLINE"] = "1"
# The program sets it before it asks, also where it runs in a test's process.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# Whoever runs the tests may have settings of their own, which are not what is tested.
for name in [name for name in os.environ if name.startswith("H2O_CHAT_")]:
    if name not in ("H2O_CHAT_SHARED", "H2O_CHAT_DATA", "H2O_CHAT_REAL_MODELS"):
        del os.environ[name]

os.environ["OLLAMA_MODELS"] = str(Path(__file__).parent / "no models of ollama here")

# Packed weights of the tests' models are made once, for all processes of this run, and not among the user's.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="h2o-chat-cache-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
# Nor is a file of settings; this folder is nowhere.
os.environ["XDG_CONFIG_HOME"] = str(Path(os.environ["XDG_CACHE_HOME"]) / "no configuration")

# Nobody else is asked either, by no test and no process that a test starts.
NO_NETWORK = str(Path(__file__).parent / "no_network")
sys.path.insert(0, NO_NETWORK)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [NO_NETWORK, os.environ.get("PYTHONPATH")]))
import network_guard  # noqa: E402

network_guard.watch()

SHARED = Path(os.environ.get("H2O_CHAT_SHARED", Path(__file__).parents[2] / "shared"))
"""Real models and text, beside the repository and not part of it."""
REAL_MODELS = "H2O_CHAT_REAL_MODELS"
REAL_SMOLLM2 = Path(os.environ.get(REAL_MODELS) or "no folder named") / smollm2.FILE


def pytest_configure(config: pytest.Config) -> None:
    """Before any test file is read: some take a share of this number of examples."""
    sweeps = "not sweep" not in config.option.markexpr
    settings.load_profile("with sweeps" if sweeps else "every behaviour once")
    if sweeps:
        os.environ[forking.WHOLE_END] = "yes"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By name of file, whatever folder it is in: tests of a screen wait, those of a cache compute.

    Each process has a part of this list at first. By folder, screens would be tested last and by all at once.
    """
    items.sort(key=lambda item: item.path.name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """All tests are collected: what they import never becomes garbage."""
    importlib.import_module(
        "h2o_chat.models.tokenizer_calls"
    )  # sets RUST_BACKTRACE, whoever imports it first
    forking.OUTSIDE.update(os.environ)
    gc.freeze()
    gc.set_threshold(
        20_000, 20, 20
    )  # each screen makes so many objects that looking took a seventh of its time
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: a server of a module is as free as the tests that use it."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
    if item.get_closest_marker("compiler"):
        try:
            build.compiler()
        except build.BuildError as error:
            pytest.skip(str(error))
    if item.get_closest_marker("real_model") and not REAL_SMOLLM2.is_file():
        pytest.skip(f"needs a real model: h2o-chat models pull smollm2, then {REAL_MODELS}=ITS_FOLDER")
    os.environ[network_guard.LOOPBACK] = "yes" if item.get_closest_marker("loopback") else ""


@pytest.fixture(scope="session")
def real_smollm2() -> Path:
    """SmolLM2's file, for tests with the marker `real_model`."""
    return REAL_SMOLLM2


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the program computes: whoever takes this runs on the CPU, and on a GPU where there is one."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def asked_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where attempts to use the network are written down, by this process and those that it starts."""
    file = tmp_path_factory.mktemp("network") / "asked"
    os.environ[network_guard.ASKED] = str(file)
    return file


@pytest.fixture(autouse=True)
def asked(asked_file: Path) -> Iterator[Path]:
    """Does so for this test, which fails if something is there when it ends."""
    yield asked_file
    if asked_file.exists():
        said = asked_file.read_text()
        asked_file.unlink()
        pytest.fail(f"The network was asked by this test or by what it started:\n{said}")


@pytest.fixture(autouse=True)
def variables() -> Iterator[None]:
    """No test leaves one changed: else nothing is forked any more, which takes ten times as long."""
    yield
    before, after = forking.early(forking.OUTSIDE), forking.early(dict(os.environ))
    if changed := {name for name, _ in before.items() ^ after.items()}:
        for name in changed:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        pytest.fail(f"This test has left other variables than it found: {sorted(changed)}")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and engines that the test starts are forked from a process that has imported torch."""
    monkeypatch.setattr(subprocess, "Popen", forking.Forked)


@pytest.fixture
def timed_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Speeds are taken without waiting for an idle machine, with less memory to read for the bandwidth."""
    import torch

    from h2o_chat.lab.bench import speed

    monkeypatch.setattr(speed, "wait_until_idle", lambda: None)
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 20)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Chat templates may compute for 0.3 s, not 1.5; what renders them."""
    from h2o_chat.chat.templates import rendering, template_process

    code = "from h2o_chat.chat.templates import template_process as one; one.LONGEST_S = 0.3; one.main()"
    monkeypatch.setattr(rendering, "_PROGRAM", code)
    monkeypatch.setattr(rendering, "LONGEST_S", 0.3)
    made = rendering.Renderer()
    monkeypatch.setattr("h2o_chat.chat.templates.chat_template.render", made.render)
    assert template_process.LONGEST_S == 1.5
    yield made
    if made._process:
        made._process.kill()
        made._process.communicate()


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of real small models; the test is skipped where it is absent."""
    return _folder("models")


@pytest.fixture(scope="session")
def shared_text() -> Path:
    """The folder of real evaluation text; the test is skipped where it is absent."""
    return _folder("text")


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, for what does not depend on what is said."""
    import opened_models

    pocket = Path(__file__).parents[1] / "assets" / "pocket"
    return opened_models.little(pocket, tmp_path_factory.mktemp("little"))


def _folder(name: str) -> Path:
    if not (SHARED / name).is_dir():
        pytest.skip(f"{SHARED / name} is not there; H2O_CHAT_SHARED names the shared folder")
    return SHARED / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a store may be; nothing is there yet."""
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """An empty one."""
    store = Store(folder)
    yield store
    store.close()
