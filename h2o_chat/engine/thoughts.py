"""Thoughts leave the slots once their answer stands: models are trained not to see them again.

The functions without an underscore are methods of `Row`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any


def expect_thoughts(row: Any, special: Iterable[int] = (), drops: bool = False) -> None:
    """Before a message: its answers may begin with thoughts.

    Args:
        special: special tokens that have a text there: marks of thoughts.
        drops: `give_up_thoughts` may come.
    """
    row.shown, row.drops_thoughts = frozenset(special), drops
    row.before_thoughts, row.fed_since = None, []


def note_before_thoughts(row: Any) -> None:
    """Before an answer: notes the state, if thoughts may be dropped."""
    if row.drops_thoughts and row.before_thoughts is None and row.cache.plan.shares.bounded:
        row.before_thoughts = row.snapshot()


def give_up_thoughts(row: Any, thoughts: Sequence[range], drops: bool) -> None:
    """Gives up the thoughts at these positions.

    Args:
        drops: at once. It goes back to `before_thoughts`, if that was noted, and reads what came since
            without them: what they had evicted is held again, and positions stay what they are. Else they
            are the first to go.
    """
    before, since, pending = row.before_thoughts, row.fed_since, row.pending
    if before is not None and drops:
        random = row.sampler.random.get_state()
        row.restore(before, hand_over=True)
        row.sampler.random.set_state(random)
        for first, ids, prompt in _runs(since):
            left = [at for at in range(len(ids)) if not any(first + at in one for one in thoughts)]
            row.skip_to(first + (left[0] if left else len(ids)))
            row.feed([ids[at] for at in left], prompt=prompt)
        row.pending = pending
    for one in thoughts if row.seen else ():
        row.cache.give_up(row.number, one, drops)


def skip_to(row: Any, position: int) -> None:
    """The next token has this position: those between were never there."""
    skipped = position - row.seen
    if skipped:
        row.runner.clock(row.number).seen = position
        for layer in row.cache.attention_layers:
            layer.fed += skipped


def _runs(fed: Sequence[tuple[int, list[int], bool]]) -> Iterator[tuple[int, list[int], bool]]:
    """Pieces of prompts as they were fed; the tokens of an answer together."""
    for prompt, pieces in groupby(fed, lambda piece: piece[2]):
        several = list(pieces)
        yield from (
            several if prompt else [(several[0][0], [one for _, ids, _ in several for one in ids], False)]
        )
