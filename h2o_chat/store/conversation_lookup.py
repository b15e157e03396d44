"""Finds a conversation by its id, the beginning of its id, or `last`."""

import difflib
from collections.abc import Sequence

from h2o_chat.base.errors import UsageError


def find(ids: Sequence[str], wanted: str) -> str:
    """The id that `wanted` means.

    Args:
        ids: of all conversations, newest first; at least one.

    Raises:
        UsageError: it means none or several of them; names similar ones.
    """
    low = wanted.strip().lower()
    if low in ids:
        return low
    if low == "last":
        return ids[0]
    starting = [one for one in ids if low and one.startswith(low)]
    if len(starting) == 1:
        return starting[0]
    if starting:
        raise UsageError(f"{wanted!r} begins {len(starting)} ids: {_several(starting)}.", "Give more of it.")
    near = difflib.get_close_matches(low, ids, n=3, cutoff=0.5)
    raise UsageError(
        f"There is no conversation {wanted!r}." + (f" Near it: {_several(near)}." if near else ""),
        "h2o-chat sessions list shows them all; last is the newest.",
    )


def _several(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
