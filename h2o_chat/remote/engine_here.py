"""An engine in this process; `engine_apart` opens the same in a process of its own."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import Progress
from h2o_chat.base.system import RANKS

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch
    from h2o_chat.engine.engine import Engine
    from h2o_chat.models.load import Loaded


def engine_here(settings: Settings, progress: Progress) -> "Engine":
    """Loads the model; imports torch.

    Raises BudgetError, UsageError for a GGUF file without a chat template, and what `open_model` raises.
    """
    loaded = _opened(settings, progress)
    from h2o_chat.engine.engine import Engine

    progress("warm up", None)
    return Engine(loaded, settings)


def _opened(settings: Settings, progress: Progress) -> "Loaded":
    from h2o_chat.models.gguf_config import why_slow
    from h2o_chat.models.resolve import find
    from h2o_chat.native.threads import let_torch_sleep
    from h2o_chat.native.weights_ahead import weights_ahead

    # A name that means nothing is told before torch is imported: that takes seconds.
    model = find(settings.model)
    if why := why_slow(model.folder):
        progress(f"open {model.name}: {why}", None)
    let_torch_sleep(settings)
    with weights_ahead(model.folder, settings) as ahead:
        with _no_collections():
            from h2o_chat.graph.loading import open_model
            from h2o_chat.models.gguf_config import forget
            from h2o_chat.models.gguf_tokenizer import require_template
            from h2o_chat.policies.references import named
            from h2o_chat.policies.shares import divide

        # A budget that cannot work is refused before the model is opened; its weights may be being laid out.
        divide(named(settings.policy), settings.budget, settings.sinks, settings.recent)
        require_template(settings)
        if RANKS > 1:
            from h2o_chat.engine.ranks import open_split

            loaded = open_split(settings, progress)
        else:
            loaded = open_model(settings, progress, ahead)
    forget()
    return loaded


@contextmanager
def _no_collections() -> Iterator[None]:
    """Switches garbage collection off while torch is imported: it takes a fifth of that time.

    Imported objects never become garbage: they are not looked at later either.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def batch_here(settings: Settings, rows: int | None, most: int, progress: Progress) -> "Batch":
    """Loads the model for many conversations at once, see `Batch`; raises what `engine_here` does."""
    loaded = _opened(settings, progress)
    from h2o_chat.engine.batch import Batch

    return Batch(loaded, settings, rows, most)
