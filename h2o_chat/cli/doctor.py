"""`h2o-chat doctor`: what is here, what would run, what is wrong and what to do about it.

torch and transformers are imported inside, and may fail: a broken installation is what this is for. Functions
raise what prevents a start; `examine` goes on with the next.
"""

import importlib
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated

import typer

import h2o_chat
from h2o_chat.base import precedence
from h2o_chat.base.config import Settings, config_file, data_folder
from h2o_chat.base.errors import ExitCode, H2OChatError, UsageError
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.opening import choose_unnamed
from h2o_chat.cli.commands import ends
from h2o_chat.models.hub import SPARE_BYTES, is_offline
from h2o_chat.models.hub_cache import cache_folder
from h2o_chat.models.model_files import check_weights
from h2o_chat.models.obtain import size
from h2o_chat.models.resolve import HubModel, LocalModel, look_up
from h2o_chat.native import build, library
from h2o_chat.store import saved_caches_bytes


@dataclass(frozen=True)
class Problem:
    what: str
    do: str
    prevents: bool
    """Whether it prevents chatting."""


@dataclass
class DoctorReport:
    rows: dict[str, str] = field(default_factory=dict)
    """Findings, by subject."""
    problems: list[Problem] = field(default_factory=list)

    def note(self, what: str, do: str) -> None:
        self.problems.append(Problem(what, do, prevents=False))

    @contextmanager
    def catching(self) -> Iterator[None]:
        """An error inside is a problem that prevents chatting."""
        try:
            yield
        except H2OChatError as error:
            self.problems.append(Problem(error.message, error.hint, prevents=True))

    @property
    def prevents(self) -> bool:
        """Whether nobody can chat here."""
        return any(problem.prevents for problem in self.problems)


@ends
def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> ExitCode:
    """Tell what is here, what will run, what is wrong, and what to do about it."""
    report = examine()
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    code = ExitCode.FAILED if report.prevents else ExitCode.OK
    if as_json:
        typer.echo(json.dumps({"ok": not report.prevents, **asdict(report)}))
        return code
    for name, value in report.rows.items():
        typer.echo(f"{name:15} {safe_text(value)}")
    for problem in sorted(report.problems, key=lambda one: not one.prevents):
        typer.echo(f"\n{'problem' if problem.prevents else 'note'}: {safe_text(problem.what)}")
        typer.echo(f"  {safe_text(problem.do)}")
    if not report.problems:
        typer.echo("\nNothing is wrong.")
    return code


def examine() -> DoctorReport:
    """Examines everything; downloads and changes nothing."""
    report = DoctorReport()
    with report.catching():
        _versions(report)
    loads = all(_imports(name, report) for name in ("torch", "h2o_chat.models.load"))
    _machine(report)
    if loads:
        _gpus(report)
    _folders(report)
    if (encoding := sys.stdout.encoding).lower().replace("-", "") != "utf8":
        report.note(f"The terminal's encoding is {encoding}.", "For the screen: export LANG=C.UTF-8")
    with report.catching():
        settings = _configuration(report)
        _model(settings, report, loads=loads)
    return report


def _versions(report: DoctorReport) -> None:
    shown = [f"h2o-chat {h2o_chat.__version__}", f"Python {platform.python_version()}"]
    shown += [f"{name} {_version(name) or 'missing'}" for name in ("torch", "transformers", "textual")]
    report.rows["versions"] = ", ".join(shown)
    from packaging.requirements import Requirement  # comes with transformers

    needs = importlib.metadata.requires("h2o-chat") if _version("h2o-chat") else []  # none: run from a folder
    for need in map(Requirement, needs or []):
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        have = _version(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            found = "is not installed" if have is None else f"is {have}; needed is {need.specifier}"
            raise UsageError(f"{need.name} {found}.", f'Install it: pip install "{need}"')


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _imports(name: str, report: DoctorReport) -> bool:
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken installation raises whatever it likes
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        report.problems.append(Problem(f"{name} cannot be imported: {said}", "Install it again.", True))
        return False
    return True


def _machine(report: DoctorReport) -> None:
    """The machine, and the native step: its form and how it was compiled, or why there is none."""
    import psutil

    memory = psutil.virtual_memory()
    report.rows["machine"] = (
        f"{platform.platform()}, {os.cpu_count()} cores, {size(memory.total)} of memory,"
        f" {size(memory.available)} available"
    )
    why, made = library.why_not(), build.made()
    if not why and made:
        report.rows["native step"] = f"{library.forms()[-1]}, compiled on {made.date} by {made.compiler}"
        return
    report.rows["native step"] = f"none: {why}"
    report.note(
        " ".join(f"There is no native step: {why}. {build.failure()}".split()),
        "On a CPU it makes a token several times as fast. With a C++ compiler (apt install g++, or"
        f" dnf install gcc-c++): {shlex.quote(sys.executable)} -m h2o_chat.native.build",
    )


def _gpus(report: DoctorReport) -> None:
    import torch

    found = []
    try:
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            found.append(f"{torch.cuda.get_device_name(number)}, {size(free)} of {size(total)} free")
    except RuntimeError as error:
        report.note(f"A GPU cannot be used: {' '.join(str(error).split())[:300]}", "Use --device cpu.")
    if not found and shutil.which("nvidia-smi"):
        report.note(
            "An NVIDIA driver is installed, but torch finds no GPU.",
            "Install a torch built for CUDA (pytorch.org/get-started), or go on with the CPU.",
        )
    report.rows["GPUs"] = "; ".join(found) or "none"


def _folders(report: DoctorReport) -> None:
    for name, folder, otherwise in (
        ("settings", config_file().parent, "h2o-chat config cannot set anything"),
        ("conversations", data_folder(None), "conversations cannot be kept"),
        ("models", cache_folder(), "models cannot be fetched"),
    ):
        # os.path: a folder that may not be looked into counts as none, where Path.exists() raises.
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if os.path.exists(one))
        free = shutil.disk_usage(there).free
        report.rows[name] = f"{folder}, {size(free)} free"
        try:
            # Permissions say nothing of a disk that is mounted read-only, or to root.
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError:
            report.note(
                f"{folder} cannot be written to: {otherwise}.", "Mend its permissions, or choose another."
            )
        if free < SPARE_BYTES:
            report.note(f"The disk of {folder} is nearly full: {otherwise}.", "Make room.")
    report.rows["conversations"] += f"; saved memories: {size(saved_caches_bytes(data_folder(None)))}"


def _configuration(report: DoctorReport) -> Settings:
    """The settings without flags."""
    for said in precedence.misspelt_variables():
        report.note(said, "Set the one that was meant, or none.")
    found = precedence.settings()
    named = [f"{one.name} = {one.value} ({one.source})" for one in found if one.source != "default"]
    report.rows["set"] = ", ".join(named) or "nothing"
    own = {one.name for one in fields(Settings)}
    return Settings(**{one.name: one.value for one in found if one.name in own})


def _model(settings: Settings, report: DoctorReport, *, loads: bool) -> None:
    """The model that a start without flags would run."""
    if settings.model is None:
        settings, report.rows["model"] = choose_unnamed(settings, data_folder(None))
    model = look_up(settings.model)
    if isinstance(model, HubModel):
        what, pull = f"{model.repository} is not on this machine", f"h2o-chat models pull {model.repository}"
        if is_offline():
            raise UsageError(f"{what}, and HF_HUB_OFFLINE is set.", f"Unset it, then: {pull}")
        report.note(f"{what}; it is fetched when it is first used.", f"To fetch it now: {pull}")
        return
    try:
        weights = check_weights(model.folder)
        told = f"{model.name}, {weights.parameters:,} parameters in {weights.dtype}, {model.folder}"
        report.rows["model"] = told
        if loads:
            _would_start(settings, model, report)
    except OSError as error:
        raise UsageError(
            f"The model cannot be read: {error}.", "Look at its folder's permissions."
        ) from error


def _would_start(settings: Settings, model: LocalModel, report: DoctorReport) -> None:
    """Makes all checks of a start before weights are read."""
    from h2o_chat.models import choices
    from h2o_chat.models.fits import sizes_of
    from h2o_chat.models.load import check_family, quantized_if_it_can_be
    from h2o_chat.models.load_tokenizer import load_tokenizer
    from h2o_chat.native import native_model
    from h2o_chat.policies.references import named
    from h2o_chat.policies.shares import divide

    config = check_family(model.folder)
    sizes, weights = sizes_of(config), choices.held_weights(model.folder, config)
    load_tokenizer(model.folder, sizes.vocabulary)
    divide(named(settings.policy), settings.budget, settings.sinks, settings.recent)
    frame = native_model.frame_or_why_not(settings, config)
    if not isinstance(frame, str):
        report.rows["step"] = f"native, {library.forms()[-1]}"
        need = native_model.checked_need(model.name, settings, sizes, weights)
        quantization = native_model.quantization_of(settings, weights)
    else:
        native_model.require_not_asked(model, settings, frame)
        settings = quantized_if_it_can_be(model, settings, config)
        report.rows["step"] = f"transformers: {frame}"
        choice = choices.choose(model.name, settings, config, weights)
        quantization, need = choice.quantization, choice.need
        report.rows["step"] += f"; {choice.dtype} on {choice.where}"
    report.rows["memory"] = (
        f"{size(need.total)}: weights as {quantization} {size(need.weights)}, {settings.budget:,} slots"
        f" {size(need.slots)}, headroom {size(need.headroom)}"
    )
