"""How every `h2o-chat lab eval` runs: load the model, measure, draw, print."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.progress import Tick, progress_bar
from h2o_chat.lab.shared.pictures import pyplot
from h2o_chat.lab.shared.report_output import tell
from h2o_chat.models.load import Loaded
from h2o_chat.native.native_model import open_model

Report = TypeVar("Report")


def run_eval(
    settings: Settings,
    stage: str,
    measure: Callable[[Loaded, Tick], Report],
    as_json: bool,
    show: Callable[[Report], None],
    folder: Path | None = None,
    draw: Callable[[Report, Path], object] | None = None,
) -> ExitCode:
    """Measures with progress on stderr, and writes the report to stdout.

    Args:
        stage: the progress bar's word.
        folder: pictures go there.

    Raises:
        UsageError: pictures are wanted, and matplotlib is not installed; said before anything is loaded.
    """
    if folder is not None:
        pyplot()
    with progress_bar() as progress:
        loaded = open_model(settings, progress)
        report = measure(loaded, partial(progress, stage))
    if folder is not None and draw is not None:
        draw(report, folder)
    return tell(report, as_json, show)
