"""The report of `h2o-chat doctor`: what is installed, what would run, what is wrong and what to do about it.

torch and transformers are imported inside, and may fail: a broken installation is what this is for.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import sys
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

import h2o_chat
from h2o_chat.base import precedence
from h2o_chat.base.config import Settings, config_file, data_folder
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.models.aliases import ALIASES, fits
from h2o_chat.models.hub import SPARE_BYTES, is_offline
from h2o_chat.models.hub_cache import cache_folder
from h2o_chat.models.model_files import check_weights
from h2o_chat.models.resolve import HubModel, LocalModel, look_up
from h2o_chat.native import build, library
from h2o_chat.store import saved_caches_bytes

SMALLEST_SCREEN = (60, 24)
"""Columns and lines that the screen is drawn and tested for."""

_SHOWN = ("torch", "transformers", "textual", "bitsandbytes", "safetensors")


@dataclass(frozen=True)
class Problem:
    what: str
    do: str
    prevents: bool
    """Whether it prevents chatting."""


@dataclass
class DoctorReport:
    """The findings; keys that end in `_bytes` are in bytes."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, error: H2OChatError) -> None:
        self.problems.append(Problem(error.message, error.hint, prevents=True))

    def note(self, what: str, do: str) -> None:
        self.problems.append(Problem(what, do, prevents=False))

    @property
    def prevents(self) -> bool:
        """Whether nobody can chat here."""
        return any(problem.prevents for problem in self.problems)


def examine() -> DoctorReport:
    """Examines everything; downloads and changes nothing."""
    report = DoctorReport()
    report.sections["versions"] = _versions(report)
    torch = _imported("torch", report)
    models = _imported("h2o_chat.models.load", report) if torch else None
    settings, report.sections["configuration"] = _configuration(report)
    report.sections["machine"] = _machine(settings, ready=models is not None)
    report.sections["machine"]["native_step"] = _native_step(report)
    report.sections["gpus"] = _gpus(torch, report) if torch else {}
    report.sections["terminal"] = _terminal(report)
    report.sections["folders"] = _folders(report)
    report.sections["hub"] = {"offline": is_offline()}
    report.sections["what_will_run"] = _model(settings, models, report) if settings else {}
    return report


def _versions(report: DoctorReport) -> dict[str, Any]:
    for line in _requirements():
        from packaging.requirements import Requirement  # comes with transformers

        need = Requirement(line)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        have = _version(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            found = "is not installed" if have is None else f"is {have}; needed is {need.specifier}"
            report.wrong(UsageError(f"{need.name} {found}.", f'Install it: pip install "{need}"'))
    shown = {name: _version(name) or "not installed" for name in _SHOWN}
    if shown["bitsandbytes"] == "not installed":
        shown["bitsandbytes"] += " (extra: only to quantise)"
    return {"h2o-chat": h2o_chat.__version__, "Python": platform.python_version(), **shown}


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("h2o-chat") or []
    except importlib.metadata.PackageNotFoundError:  # run from a folder
        return []


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _imported(name: str, report: DoctorReport) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation raises whatever it likes
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        report.wrong(UsageError(f"{name} cannot be imported: {said}", "Install it again; see the README."))
        return None


def _configuration(report: DoctorReport) -> tuple[Settings | None, dict[str, Any]]:
    """The settings without flags; None if they are wrong."""
    path = config_file()
    wrong: list[UsageError] = []
    try:
        wrong += precedence.check_file(path)[1]
        precedence.from_environment()
    except UsageError as error:
        wrong.append(error)
    for one in wrong:
        report.wrong(one)
    for one in precedence.unknown_variables():
        report.note(one.message, one.hint)
    rows: dict[str, Any] = {"file": str(path), "exists": os.path.exists(path), "valid": not wrong}
    if wrong:
        return None, rows
    found = precedence.settings()
    rows["set"] = {one.name: f"{one.value} ({one.source})" for one in found if one.source != "default"}
    own = {one.name for one in fields(Settings)}
    return Settings(**{one.name: one.value for one in found if one.name in own}), rows


def _machine(settings: Settings | None, *, ready: bool) -> dict[str, Any]:
    memory = psutil.virtual_memory()
    threads = settings.threads if settings else None
    if threads is None and ready:
        from h2o_chat.models.choices import default_threads

        threads = default_threads()
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_bytes": memory.total,
        "available_bytes": memory.available,
    }


def _native_step(report: DoctorReport) -> str:
    """The form of the native step that this processor runs, and how it was compiled; or why there is none."""
    why, made = library.why_not(), build.made()
    if not why and made:
        return f"{library.forms()[-1]}, compiled on {made.date} by {made.compiler}"
    report.note(
        " ".join(f"There is no native step: {why}. {build.failure()}".split()),
        "On a CPU it makes a token several times as fast. With a C++ compiler (apt install g++, or"
        f" dnf install gcc-c++): {shlex.quote(sys.executable)} -m h2o_chat.native.build",
    )
    return f"none: {why}"


def _gpus(torch: Any, report: DoctorReport) -> dict[str, Any]:
    rows: dict[str, Any] = {
        "cuda": torch.version.cuda or "torch was built without it",
        "triton": importlib.util.find_spec("triton") is not None,
        "devices": [],
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a broken driver is reported below
            for number in range(torch.cuda.device_count()):
                free, total = torch.cuda.mem_get_info(number)
                name = torch.cuda.get_device_name(number)
                rows["devices"].append({"name": name, "memory_bytes": total, "free_bytes": free})
    except RuntimeError as error:
        report.note(f"A GPU cannot be used: {' '.join(str(error).split())[:300]}", "Use --device cpu.")
    if not rows["devices"] and shutil.which("nvidia-smi"):
        report.note(
            "An NVIDIA driver is installed, but torch finds no GPU.",
            "Install a torch built for CUDA (pytorch.org/get-started), or go on with the CPU.",
        )
    return rows


def _terminal(report: DoctorReport) -> dict[str, Any]:
    is_terminal, encoding = sys.stdout.isatty(), sys.stdout.encoding
    rows: dict[str, Any] = {"stdout": "a terminal" if is_terminal else "no terminal", "encoding": encoding}
    if encoding.lower().replace("-", "") != "utf8":
        report.note(f"The terminal's encoding is {encoding}.", "For the screen: export LANG=C.UTF-8")
    if not is_terminal:
        return rows
    columns, lines = shutil.get_terminal_size()
    least = "{} x {}".format(*SMALLEST_SCREEN)
    if columns < SMALLEST_SCREEN[0] or lines < SMALLEST_SCREEN[1]:
        report.note(f"The terminal has {columns} x {lines} cells.", f"The screen needs {least}: enlarge it.")
    if os.environ.get("TERM", "") in ("dumb", "unknown"):
        report.note(f"TERM is {os.environ['TERM']}.", "The screen needs a terminal that can draw.")
    return rows | {"size": f"{columns} x {lines}", "TERM": os.environ.get("TERM")}


def _folders(report: DoctorReport) -> dict[str, Any]:
    needed_for = {
        "config": (config_file().parent, "h2o-chat config cannot set anything"),
        "data": (data_folder(None), "conversations cannot be kept"),
        "models": (cache_folder(), "models cannot be fetched"),
    }
    rows = {}
    for name, (folder, otherwise) in needed_for.items():
        rows[name] = _folder(folder)
        if not rows[name]["writable"]:
            report.note(
                f"{folder} cannot be written to: {otherwise}.", "Mend its permissions, or choose another."
            )
        elif rows[name]["free_bytes"] < SPARE_BYTES:
            report.note(f"The disk of {folder} is nearly full: {otherwise}.", "Make room.")
    rows["data"]["saved_memories_bytes"] = saved_caches_bytes(data_folder(None))
    with suppress(UsageError):  # a configuration that cannot be used is told already
        rows["data"]["at_most_bytes"] = precedence.saved_memories_bytes()
    return rows


def _folder(folder: Path) -> dict[str, Any]:
    """A folder, or the existing one in which it would be made."""
    # os.path: a folder that may not be looked into counts as none, where Path.exists() raises.
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if os.path.exists(one))
    return {
        "path": str(folder),
        "exists": os.path.isdir(folder),
        "writable": _writable(there),
        "free_bytes": shutil.disk_usage(there).free,
    }


def _writable(folder: Path) -> bool:
    """Whether a file can be made there; permissions say nothing of a disk that is mounted read-only, or to
    root."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _model(settings: Settings, models: Any, report: DoctorReport) -> dict[str, Any]:
    """The model that a start without flags would run."""
    from h2o_chat.chat.conversation.opening import choose_unnamed

    rows: dict[str, Any] = {"asked_for": settings.model}
    try:
        if settings.model is None:
            settings, what = choose_unnamed(settings, data_folder(None))
            rows["asked_for"] = f"none: {what}"
        model = look_up(settings.model)
        if isinstance(model, HubModel):
            return rows | _not_here(model, report)
        rows |= {"name": model.name, "folder": str(model.folder)}
        weights = check_weights(model.folder)
        rows |= {"parameters": weights.parameters, "stored_as": weights.dtype}
        if models is not None:
            _fits(settings, model, models, rows)
    except H2OChatError as error:
        report.wrong(error)
    except OSError as error:
        report.wrong(H2OChatError(f"The model cannot be read: {error}.", "Look at its folder's permissions."))
    return rows


def _not_here(model: HubModel, report: DoctorReport) -> dict[str, Any]:
    what, pull = f"{model.repository} is not on this machine", f"h2o-chat models pull {model.repository}"
    if is_offline():
        report.wrong(UsageError(f"{what}, and HF_HUB_OFFLINE is set.", f"Unset it, then: {pull}"))
    else:
        report.note(f"{what}; it is fetched when it is first used.", f"To fetch it now: {pull}")
    rows: dict[str, Any] = {"name": model.repository, "folder": None}
    alias = next((one for one in ALIASES.values() if one.repository == model.repository), None)
    if alias is not None:
        rows["fits_memory_at"] = fits(alias, psutil.virtual_memory().total)
    return rows


def _fits(settings: Settings, model: LocalModel, models: Any, rows: dict[str, Any]) -> None:
    """Makes all checks of a start before weights are read; fills `rows` as far as it comes.

    Raises:
        H2OChatError: it would not start.
    """
    from h2o_chat.models import choices
    from h2o_chat.models.held_weights import held_weights
    from h2o_chat.models.load_tokenizer import load_tokenizer
    from h2o_chat.models.sizes import sizes_of
    from h2o_chat.native import native_model
    from h2o_chat.policies.references import named
    from h2o_chat.policies.shares import divide

    config = models.check_family(model.folder)
    weights = held_weights(model.folder, config)
    if settings.quantize == "auto" and not models.quantizable(model.folder, config):
        settings = replace(settings, quantize="none")
    rows["class"] = type(config).__name__.removesuffix("Config")
    sizes = sizes_of(config)
    load_tokenizer(model.folder, sizes.vocabulary)
    why = native_model.why_not_native(settings, config)
    rows["step"] = f"transformers: {why}" if why else f"native, {library.forms()[-1]}"
    native_model.require_asked(model.name, settings, why)
    if why:
        device = choices.choose_device(settings.device)
        stored = choices.stored_quantization(config)
        quantization = choices.choose_quantization(settings, weights, stored)
        dtype, place = choices.choose_dtype(settings, weights, device, quantization), str(device)
        need = choices.needs_of(settings, config, weights, dtype, [quantization])[quantization]
    else:
        quantization, dtype, place = native_model.quantization_of(settings, weights), "float32", "cpu"
        need = native_model.needs_of(settings, sizes, weights)[quantization]
    rows |= {"quantization": quantization, "dtype": dtype, "device": place, "budget": settings.budget}
    rows |= {"weights_bytes": need.weights, "slots_bytes": need.slots, "headroom_bytes": need.headroom}
    rows |= {"needed_bytes": need.total, "fits": False}
    divide(named(settings.policy), settings.budget, settings.sinks, settings.recent)
    if not why:
        native_model.require_room(model.name, settings, sizes, weights)
    else:
        choices.choose(model.name, settings, config, weights)
    rows["fits"] = True
    if why and quantization != "none" and importlib.util.find_spec("bitsandbytes") is None:
        raise UsageError(
            f"bitsandbytes is not installed, and {model.name} would be held in {quantization}.",
            "Install it: pip install bitsandbytes, or: h2o-chat config set quantize none",
        )
