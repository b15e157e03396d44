"""Silences what transformers says while it loads, and passes its progress bars on."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]
from transformers.utils import logging as hf_logging


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings and logs of transformers and its helpers; afterwards only errors are logged.

    While it computes, transformers would tell of kernels that are not installed and of parts left out.
    """
    for name in ("bitsandbytes", "accelerate"):  # for good: the first logs at the first token, too
        logging.getLogger(name).setLevel(logging.CRITICAL)
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity(hf_logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(max(level, hf_logging.ERROR))


@contextlib.contextmanager
def reporting(report: Callable[[float], None]) -> Iterator[None]:
    """Turns transformers' progress bars into calls of `report` with the share done."""
    previous = hf_logging.set_tqdm_hook(lambda _factory, args, kwargs: _Bar(report, *args, **kwargs))
    try:
        yield
    finally:
        hf_logging.set_tqdm_hook(previous)


class _Bar(tqdm):  # type: ignore[misc]
    """A bar of transformers, which is reported and not drawn."""

    monitor_interval = 0  # no thread that looks after it

    def __init__(self, report: Callable[[float], None], *args: Any, **given: Any) -> None:
        self._report = report
        super().__init__(*args, **given | {"file": io.StringIO(), "disable": False})

    def display(self, *_: Any, **__: Any) -> None:
        if self.total:
            self._report(min(1.0, self.n / self.total))
