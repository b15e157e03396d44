"""Row capacity: how many conversations fit into memory, computed before any of them begins."""

from h2o_chat.base.devices import free_bytes
from h2o_chat.base.errors import BudgetError
from h2o_chat.cache.plan import GROW
from h2o_chat.engine.runner import Runner
from h2o_chat.models.fits import HEADROOM_BYTES, slot_bytes

ROWS = 16  # default number of rows: a product of the native step takes so many tokens
READERS = 4  # most prompts that are read at once: each has a cache of one row
BESIDE = READERS + 4
"""Rows that memory is kept for beside those that answer: prompts that are read, and copies of rows whose
slots are ranked (`eviction.TOGETHER`)."""

SNAPSHOTS = 64  # default number of conversations kept beside the rows, as far as they take SNAPSHOTS_BYTES
SNAPSHOTS_BYTES = 2 << 30  # default bytes of these; but each row may keep one, to go on from
NOT_READ_YET = 4  # requests whose snapshot was dropped but is still in memory: they wait or are read
OBJECTS_BYTES = 16 << 10
"""The constant part of a snapshot: the sampler's state, 5 kB, and Python's objects; with 64 slots of the
bundled model a fifteenth of it."""
WORKING_BYTES = 8 << 20
"""Bytes of a server's steps beside rows and snapshots: buffers of the library, Python's objects, and holes
in the heap. Measured with the bundled model: 7 to 10 MB, with 64 slots and with 128."""


def row_bytes(runner: Runner) -> int:
    """Bytes of a conversation while it is answered: its slots, and its logits twice."""
    return slots_bytes(runner) + 8 * runner.loaded.sizes.vocabulary


def snapshot_bytes(runner: Runner) -> int:
    return slots_bytes(runner) + OBJECTS_BYTES


def slots_bytes(runner: Runner) -> int:
    """Bytes of the slots of a conversation, and of what other layers keep; without a budget as many slots as
    the model's window has tokens."""
    plan, loaded = runner.cache.plan, runner.loaded
    slots = plan.slots if plan.shares.bounded else runner.trained.window + GROW
    kv = {8: "int8", 4: "int4"}.get(plan.bits or 0, "auto")
    fixed: int = sum(kind.state_bytes for kind in runner.trained.layers)
    return slots * slot_bytes(loaded.sizes, loaded.precision.itemsize, kv, runner.trained.shapes) + fixed


def rows_for(runner: Runner, wanted: int | None, most: int) -> int:
    """How many rows to have.

    Args:
        runner: one of this model and these settings; its weights are loaded.
        wanted: None: `ROWS`, or as many as fit.
        most: number of conversations.

    Raises:
        BudgetError: so many do not fit; says the sum.
    """
    free, each = free_bytes(runner.device) - HEADROOM_BYTES - _not_read_yet(runner), row_bytes(runner)
    fit = free // each - BESIDE
    if fit < 1 or (wanted is not None and min(wanted, most) > fit):
        rows = "Not one row fits" if fit < 1 or wanted is None else f"{min(wanted, most):,} rows do not fit"
        raise BudgetError(
            f"{rows}: each takes {each / 1e6:,.1f} MB, {BESIDE} more are kept free, and"
            f" {runner.device} has {max(0, free) / 1e9:,.1f} GB for them.",
            f"What fits: --rows {fit}." if fit >= 1 else "Try a smaller --budget, or --kv-dtype int8.",
        )
    return max(1, min(ROWS if wanted is None else wanted, fit, most))


def snapshots_for(runner: Runner, rows: int, wanted: int | None) -> int:
    """How many conversations to keep in memory beside the rows.

    Args:
        runner: one of this model and these settings, of which no row has slots yet.
        rows: that will answer.
        wanted: None: `SNAPSHOTS`, or as many as `SNAPSHOTS_BYTES` or half of the free memory allow.

    Raises:
        BudgetError: so many do not fit; says the sum.
    """
    free = free_bytes(runner.device) - HEADROOM_BYTES - _not_read_yet(runner)
    free -= serving_bytes(runner, rows, 0)
    each = snapshot_bytes(runner)
    fit = max(0, free // each)
    if wanted is None:
        return min(SNAPSHOTS, max(rows, SNAPSHOTS_BYTES // each), fit // 2)
    if wanted > fit:
        raise BudgetError(
            f"{wanted:,} snapshots do not fit: each takes {each / 1e6:,.1f} MB, and beside {rows} rows and"
            f" what is kept free for prompts {runner.device} has {max(0, free) / 1e9:,.1f} GB for them.",
            f"What fits: --snapshots {fit}.",
        )
    return wanted


def serving_bytes(runner: Runner, rows: int, snapshots: int) -> int:
    """Most bytes of so many rows and snapshots, with what is kept free and what steps work with."""
    held = (rows + BESIDE) * row_bytes(runner) + (snapshots + NOT_READ_YET) * snapshot_bytes(runner)
    return held + WORKING_BYTES


def _not_read_yet(runner: Runner) -> int:
    """Bytes of packed weights: they are mapped, and take memory as they are read."""
    return runner.native.packed.mapped_bytes if runner.native else 0
