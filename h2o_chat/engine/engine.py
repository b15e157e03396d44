"""A conversation with a runner of its own: `Engine.generate(...)` yields events."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Seldom, ShouldStop, never, unheard
from h2o_chat.base.system import RANKS
from h2o_chat.engine import generation
from h2o_chat.engine.request import EarlierAnswer
from h2o_chat.engine.row import Row
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.events.events import Event
from h2o_chat.models.load import Loaded
from h2o_chat.policies.references import named
from h2o_chat.policies.shares import divide


class Engine(Row):
    """The only row of its runner, so that its budget and policy can be changed; raises as `H2OCache`."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        if RANKS > 1:
            from h2o_chat.engine.ranks import RankedRunner  # not every torch can be distributed

            super().__init__(RankedRunner(loaded, settings), settings)
        else:
            super().__init__(Runner(loaded, cache_for(loaded, settings)), settings)
        self.runner.warm_up()

    def generate(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        cancel: ShouldStop = never,
        others: Sequence[EarlierAnswer] = (),
    ) -> Iterator[Event]:
        """Reads `ids` and answers, see `generation.generate`."""
        return generation.generate(self, list(ids), sampling, cancel, others)

    def feed_again(
        self,
        ids: Sequence[int],
        *,
        answer: bool,
        exact: bool,
        cancel: ShouldStop,
        tick: Callable[[int], None] = unheard,
        skips: int = 0,
    ) -> bool:
        """Feeds a message again, see `feeding_again`; False if it was cancelled.

        Args:
            tick: told now and then how many tokens were fed.
            skips: first tokens of it that are left out: a thought that was dropped.
        """
        if skips:
            self.skip_to(self.seen + len(self.pending) + skips)
        exact = exact and not skips  # as `give_up_thoughts` reads it
        again, seldom = feeding_again(self, ids[skips:], answer=answer, exact=exact, cancel=cancel), Seldom()
        while True:
            try:
                fed = next(again)
            except StopIteration as end:
                return bool(end.value)
            if seldom.due():
                tick(fed)

    def check(self, settings: Settings) -> None:
        """Checks the budget of settings, without making an engine; raises BudgetError if it cannot work."""
        divide(named(settings.policy), settings.budget, settings.sinks, settings.recent)

    def remade(self, settings: Settings) -> "Engine":
        """An engine with an empty cache for the same model; raises BudgetError if the budget cannot work."""
        return Engine(self.runner.loaded, replace(settings, seed=self.seed))

    def close(self) -> None:
        """Free the memory of the conversation; the engine is not used any more."""
        self.reset()


def feeding_again(
    row: Row, ids: Sequence[int], *, answer: bool, exact: bool, cancel: ShouldStop = never
) -> Generator[int, None, bool]:
    """Feeds a message again: a prompt as it was read, an answer up to its last token, which waits.

    Yields the number of tokens fed after each call of the model.

    Args:
        exact: an answer token by token, as it was generated; else in chunks: faster, another cache.

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
