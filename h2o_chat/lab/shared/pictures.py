"""One picture in one file, by matplotlib (the extra `plot`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import UsageError, refusal

SIZE_INCHES = (7, 4.5)


def pyplot() -> Any:
    """matplotlib, drawing into files alone.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise UsageError(
            "Pictures need the package matplotlib.", "Install it with pip install 'h2o-chat[plot]'."
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def draw(path: Path, title: str, put: Callable[[Any, Any], None], report: Any) -> Path:
    """One picture: `put` draws the report on its axes.

    Raises:
        UsageError: the folder cannot be written to.
    """
    plt = pyplot()
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    axes.set_title(title)
    put(axes, report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {refusal(error)}.") from error
    finally:
        plt.close(figure)
    return path
