"""When a GGUF file's weights are laid out while torch is imported, and when not. No torch."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from h2o_chat.base.config import Settings
from h2o_chat.base.system import RANKS
from h2o_chat.models.fits import Need, slot_bytes
from h2o_chat.models.model_files import check_weights
from h2o_chat.native import library
from h2o_chat.native.gguf_frame import frame_without_rotations
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.model_frame import frame_sizes
from h2o_chat.native.threads import asks_for_transformers

SWITCH_S = 0.0003
"""Python's switch interval meanwhile: with its 5 ms the threads wait for the import half of the time."""


@contextmanager
def weights_ahead(file: Path, settings: Settings) -> Iterator[GgufWeights | None]:
    """Begins to lay weights out: importing torch takes two seconds of one core, and the others wait.

    Yields None where another step may compute this model, or it does not fit: then whoever opens the model
    reads the weights, or refuses it in words. What is not finished at the end is given up.

    Raises:
        ModelError: the file is damaged.
    """
    weights = _weights(file, settings)
    if weights is None:
        yield None
        return
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        weights.begin()
        yield weights
    finally:
        sys.setswitchinterval(before)
        weights.give_up()


def _weights(file: Path, settings: Settings) -> GgufWeights | None:
    if not file.is_file() or RANKS > 1 or library.why_not() or asks_for_transformers(settings):
        return None
    if settings.engine not in ("auto", "native") or settings.device not in ("auto", "cpu"):
        return None
    if settings.device == "auto" and shutil.which("nvidia-smi"):  # a GPU may compute it
        return None
    frame = frame_without_rotations(file)
    if frame is None:
        return None
    slots = (settings.budget + 1) * slot_bytes(frame_sizes(frame), 4, settings.kv_dtype)
    if Need(check_weights(file).held_bytes, slots).total > psutil.virtual_memory().available:
        return None
    return GgufWeights(file, frame)
