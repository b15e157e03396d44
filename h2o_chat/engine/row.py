"""A row of a runner: one conversation, with its waiting tokens, its sampler and its observer."""

import errno
import os
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import ShouldStop, never
from h2o_chat.cache.forward_call import Cancelled
from h2o_chat.engine import thoughts
from h2o_chat.engine.observer import Observer
from h2o_chat.engine.runner import Runner, session_of
from h2o_chat.engine.sampling import Sampler
from h2o_chat.engine.saved_cache import CacheReader, RowSnapshot, read, write
from h2o_chat.events.events import CacheState, Session
from h2o_chat.models.load import out_of_memory
from h2o_chat.native.threads import one_torch_thread
from h2o_chat.transformers_cache.cache import H2OCache


class Row:
    """One conversation, row `number` of a runner, which holds its keys and values; every token is fed once.

    The last token of an answer was sampled but not fed: it waits in `pending`, in front of the next turn.
    """

    def __init__(self, runner: Runner, settings: Settings, number: int = 0) -> None:
        self.runner, self.number, self.settings = runner, number, settings
        self.model, self.eos = runner.model, runner.eos
        self.tokenizer = runner.loaded.tokenizer
        self.seed = secrets.randbits(32) if settings.seed is None else settings.seed
        self.sampler = Sampler(self.seed, runner.device)
        self.observer = Observer(runner.cache, self.tokenizer, number)
        self._watched = True
        self.pending: tuple[int, ...] = ()
        self.grammar = ""  # of all answers of `generate`, in llguidance's form of Lark; empty: they are free
        self.shown = frozenset[int]()  # special tokens that have a text in answers
        self.drops_thoughts = False
        self.before_thoughts: RowSnapshot | None = None  # before the first thought since `expect_thoughts`
        self.fed_since: list[tuple[int, list[int], bool]] = []  # (first position, tokens, whether a prompt)
        self.session = session_of(runner, self.seed)

    @property
    def cache(self) -> H2OCache:
        """The runner's, without a token that was fed ahead."""
        self.runner.sync_cache()
        return self.runner.cache

    @property
    def seen(self) -> int:
        return self.runner.clock(self.number).seen

    @property
    def kept(self) -> int:
        """Slots in use in the fullest KV head."""
        return self.runner.clock(self.number).in_use

    # -- tokens in ----------------------------------------------------------------------------------------

    def choose(
        self, logits: Tensor, sampling: Sampling, changes: Mapping[int, float], ahead: bool = False
    ) -> int:
        """The next token from logits [V], see `Sampler.choose`.

        Args:
            ahead: the graph step feeds it before it is known here, so that `forward` has little to do.
        """
        meanwhile = self.runner.feed_ahead if ahead else None
        self.runner.chosen = token = self.sampler.choose(logits, sampling, changes, meanwhile)
        return token

    def forward(self, ids: Sequence[int], prompt: bool = False, cancelled: ShouldStop = never) -> Tensor:
        """Feeds tokens in one call, while other rows wait; logits [V] of the last one.

        See `Runner.feed`, also for what it raises. Where it was cancelled, part of it may have been fed.
        """
        first = self.seen
        pieces = [ids if number == self.number else () for number in range(self.runner.rows)]
        logits = self.runner.feed(pieces, prompt, cancelled=cancelled)[self.number, -1]
        self.note_fed(first, ids)
        if self.before_thoughts is not None:
            self.fed_since.append((first, list(ids), prompt))
        return logits

    def note_fed(self, first: int, ids: Sequence[int]) -> None:
        """Note tokens that the runner was fed for it, at the positions first, first + 1 ..."""
        if self.settings.events_every:  # the events alone use these, and take them out again
            self.observer.note_fed(first, ids)
        self.sampler.history.extend(ids)

    def feed(self, ids: Sequence[int], cancel: ShouldStop = never, prompt: bool = True) -> Tensor | None:
        """Feeds the pending tokens and `ids`, step by step; logits of the last token.

        None if there is nothing to feed, or it was cancelled. Then part of it was fed: go back to a snapshot,
        as after an error.
        """
        of, last = len(self.pending) + len(ids), None
        for fed, logits in self.feeding(ids, cancel, prompt=prompt):
            last = logits if fed == of else None
        return last

    def feeding(
        self, ids: Sequence[int], cancel: ShouldStop, call_tokens: int = 0, prompt: bool = True
    ) -> Iterator[tuple[int, Tensor]]:
        """Like `feed`, but yields after each call (tokens fed so far, logits [V] of the last one).

        It ends early where it was cancelled.

        Args:
            call_tokens: most tokens in one call; 0: `Runner.call_tokens`.
        """
        waited, fed = len(self.pending), 0
        while fed < waited + len(ids):
            if cancel():
                return
            until = fed + (call_tokens or self.runner.call_tokens)
            # A million ids are not copied: other threads would wait for that.
            tokens = [*self.pending[fed:until], *ids[max(0, fed - waited) : max(0, until - waited)]]
            try:
                logits = self.forward(tokens, prompt, cancel)
            except Cancelled:
                return
            fed += len(tokens)
            if fed == waited + len(ids):
                self.pending = ()
            yield fed, logits

    def reseed(self, seed: int) -> None:
        self.seed = seed
        self.sampler.random.manual_seed(seed)
        self.session = replace(self.session, seed=seed)

    # -- what is protected -----------------------------------------------------------------------------

    def protect(self, tokens: int) -> int:
        """Protects the first tokens of the conversation (a system prompt); returns how many are."""
        return self.cache.protect(tokens, self.number)

    def pin(self, positions: range) -> int:
        """Protects the tokens at these positions; returns how many could be, raises as `H2OCache.pin`."""
        return self.cache.pin(positions, self.number)

    def unpin(self, positions: range | None = None, keep: Sequence[int] = ()) -> None:
        """Lets them be evicted again; None: all pinned tokens but `keep`."""
        self.cache.unpin(positions, keep, self.number)

    def evict_generated(self, openings: Sequence[int] = ()) -> None:
        """Evicts all that the model said itself, see `H2OCache.evict_generated`."""
        if self.seen:
            self.cache.evict_generated(self.number, openings)

    expect_thoughts, skip_to = thoughts.expect_thoughts, thoughts.skip_to
    note_before_thoughts, give_up_thoughts = thoughts.note_before_thoughts, thoughts.give_up_thoughts

    def budget_for(self, protected: int) -> int | None:
        """The smallest budget that can protect so many slots; None where no budget does."""
        return self.cache.budget_for(protected)

    def protection(self) -> tuple[int, int | None]:
        """(protected slots of the fullest KV head, slots left for heavy hitters or None without a limit)."""
        shares, protected = self.cache.plan.shares, self.cache.protected_in(self.number)
        return protected, shares.budget - shares.recent - protected if shares.bounded else None

    # -- what is seen of it ----------------------------------------------------------------------------

    def cache_state(self) -> CacheState:
        """The event `cache`: what the slots hold now."""
        self.runner.sync_cache()
        with one_torch_thread() if self.runner.native else nullcontext():
            return self.observer.state(self._watched)

    def watch(self, on: bool) -> None:
        """Collect what only a memory panel shows, or do not."""
        self._watched = on

    def inspect(self, position: int) -> list[list[bool]]:
        """Which KV heads hold the token at a position: [layers][KV heads]."""
        layers = range(len(self.cache.attention_layers))
        return [(self.cache.kept(layer)[self.number] == position).any(-1).tolist() for layer in layers]

    def held(self, positions: range) -> float:
        """Share of the tokens at these positions that the KV heads hold, over all layers: 0 to 1."""
        slots = [arena.slots.positions[:, self.number] for arena in self.cache.current_arenas()]
        return share_held(slots, positions)

    # -- going elsewhere, going back -------------------------------------------------------------------

    def move_to(self, runner: Runner, number: int) -> None:
        """Goes on as row `number` of another runner of this model, with an equal cache; leaves a copy behind.

        Raises as `Runner.put`.
        """
        runner.put(number, self.runner.row_snapshot(self.number, copy=False))
        self.runner, self.number = runner, number
        self.observer.move_to(runner.cache, number)

    def save(self, path: Path) -> None:
        """Writes the state to a file, in one move; OSError: no room on the disk or in memory, or no right."""
        try:
            write(path, self.snapshot(copy=False), self.session)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error

    def load(self, path: Path) -> None:
        self.restore(read_for(self.runner, self.session, path), hand_over=True)

    def snapshot(self, *, copy: bool = True) -> RowSnapshot:
        """The state, for going back; without `copy` valid until the next token is fed."""
        return RowSnapshot(
            cache=self.runner.row_snapshot(self.number, copy=copy),
            pending=self.pending,
            random=self.sampler.random.get_state(),
            history=tuple(self.sampler.history),
            texts=dict(self.observer.ids),
            lost=self.observer.lost,
        )

    def restore(self, snapshot: RowSnapshot, *, hand_over: bool = False) -> None:
        """Goes back to a snapshot; it can be used again unless it is handed over, which needs no memory."""
        self.before_thoughts, self.fed_since = None, []
        self.runner.put(self.number, snapshot.cache, hand_over=hand_over)
        self.pending = snapshot.pending
        self.sampler.random.set_state(snapshot.random)
        self.sampler.history = deque(snapshot.history, self.sampler.history.maxlen)
        self.observer.ids = dict(snapshot.texts)
        self.observer.lost = snapshot.lost

    def reset(self) -> None:
        """Forget the conversation; the sampler's random state stays."""
        self.before_thoughts, self.fed_since = None, []
        self.runner.empty(self.number)
        self.pending = ()
        self.sampler.history.clear()
        self.observer = Observer(self.cache, self.tokenizer, self.number)


def read_for(runner: Runner, session: Session, path: Path) -> RowSnapshot:
    """The state in a file, for a row of a runner; raises as `saved_cache.read`."""
    return read(path, CacheReader(session, runner.device, runner.loaded.sizes, runner.trained))


def share_held(slots: Sequence[Tensor], positions: range) -> float:
    """Share of the tokens at these positions that are in slots, positions [L, H, S] each: 0 to 1."""
    found = sum(int(((one >= positions.start) & (one < positions.stop)).count_nonzero()) for one in slots)
    return found / max(1, len(positions) * sum(one.shape[0] * one.shape[1] for one in slots))
