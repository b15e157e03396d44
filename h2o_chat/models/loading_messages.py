"""Silences what transformers says while it loads, and passes its progress bars on."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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


class _Bar:
    """The part of tqdm's interface that transformers uses: an iterable and a counter."""

    def __init__(
        self,
        report: Callable[[float], None],
        iterable: Iterable[Any] | None = None,
        *_: Any,
        total: float | None = None,
        **__: Any,
    ) -> None:
        self._report = report
        self._items: list[Any] = [] if iterable is None else list(iterable)
        self._total = total or len(self._items)
        self._done = 0.0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def update(self, n: float = 1) -> None:
        self._done += n
        if self._total:
            self._report(min(1.0, self._done / self._total))

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        return None

    def set_postfix(self, *_: Any, **__: Any) -> None:
        return None
