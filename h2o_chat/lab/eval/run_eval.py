"""How every `h2o-chat lab eval` runs: load the model, measure, print."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.progress import Tick, progress_bar
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
) -> ExitCode:
    """Measures with progress on stderr, and writes the report to stdout.

    Args:
        stage: the progress bar's word.
    """
    with progress_bar() as progress:
        loaded = open_model(settings, progress)
        report = measure(loaded, partial(progress, stage))
    return tell(report, as_json, show)
