"""How far something is, on stderr and only where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float | None], None]
"""(what is being done, share done 0..1 or None while nobody can tell)"""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Reports to a bar on stderr if that is a terminal, else to nobody."""
    if not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(stage: str, share: float | None) -> None:
            bar.update(task, description=stage, total=None if share is None else 1.0, completed=share or 0.0)

        yield report
