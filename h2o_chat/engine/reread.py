"""Feeds a message of a conversation again, as it was read or generated then."""

from collections.abc import Callable, Generator, Sequence

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import never
from h2o_chat.engine.row import Row


def reliving(
    row: Row, ids: Sequence[int], *, answer: bool, exact: bool, cancel: Callable[[], bool] = never
) -> Generator[int, None, bool]:
    """Feeds a message again: a prompt as it was read, an answer up to its last token, which waits.

    Yields the number of tokens fed after each call of the model.

    Args:
        exact: an answer token by token, as it was generated; else in chunks, which is faster and gives
            another cache.

    Returns:
        Whether it was fed to its end; False if it was cancelled.

    Raises:
        UsageError: a token that this model does not have: it was said with another model.
    """
    known = row.runner.loaded.sizes.vocabulary
    if ids and not 0 <= min(ids) <= max(ids) < known:
        raise UsageError(
            f"The conversation holds the token {max(ids):,}, and {row.session.model} knows {known:,}:"
            " it was held with another model of that name.",
            "Resume it with the folder it was held with, or export it and import it as a new one.",
        )
    whole, last = (ids[:-1], tuple(ids[-1:])) if answer else (ids, ())
    of, fed = len(row.pending) + len(whole), 0
    if whole:
        for fed, _ in row.feeding(whole, cancel, 1 if answer and exact else 0, prompt=not answer):
            yield fed
        if fed < of:
            return False
    row.pending = (*row.pending, *last)
    return True
