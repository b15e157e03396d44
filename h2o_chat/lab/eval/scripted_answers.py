"""Many conversations at once, each read as the engine reads it alone.

A conversation is fed message by message, in chunks mostly shorter than a sentence, so with a small model
most time goes into making the calls. Here the next chunks of several conversations, where about equally
long, go through a runner in one call. Every row keeps its own chunks, so answers are those of one
conversation alone, up to rounding.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor

from h2o_chat.base.errors import GenerationError
from h2o_chat.base.progress import Tick, unheard
from h2o_chat.engine.row import share_held
from h2o_chat.engine.runner import Runner
from h2o_chat.lab.eval.scripted_conversation import Feed, Script
from h2o_chat.models.fits import slot_bytes
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.snapshot import Snapshot

ROWS = 16
"""In one call; more gain nothing on a CPU."""
CALL_TOKENS = 40
"""A call costs about as much as this many tokens more, with a model of a few million parameters."""
UNDER_WAY = 4 * ROWS
"""Conversations among which chunks of about equal length are looked for."""
STATE_BYTES = 1 << 29
"""Of keys and values of all conversations under way; large models get fewer."""
FULL_CHUNK = 64
"""Without eviction chunks mean nothing, so the `full` policy gets equal ones."""


@dataclass
class _Question:
    """Tokens that are fed to a branch of the conversation, which then answers."""

    number: int
    pieces: list[Feed]
    recall: bool


@dataclass(eq=False)
class _Row:
    """A conversation under way, or a question branched off it."""

    script: Script
    pieces: deque[Feed | _Question]
    answers: list[str | None]
    """Of the conversation's questions, to be filled in."""
    state: Snapshot
    """Of the cache; shared by branches, never written to. Out of date while the runner holds the row."""
    question: int | None = None
    asked: list[int] = field(default_factory=list)
    """The question's tokens."""
    answer: list[int] = field(default_factory=list)
    nll: list[float] | None = None
    """Of the conversation's tokens from the second on, if wanted; the script's own list."""
    expected: Tensor | None = None
    """[V] what was expected next, after the last token fed; kept only for `nll`."""
    fed: int = 0
    slots: int = 0
    """Of a layer; only the full cache has more of them as it grows."""


def answers(
    loaded: Loaded,
    scripts: Sequence[Script],
    cache: H2OCache,
    tokens: int,
    tick: Tick = unheard,
    nll: list[list[float]] | None = None,
) -> list[list[str | None]]:
    """Greedy answers to the questions of every conversation, in order.

    Args:
        cache: a fresh one, made with the model's positions.
        tokens: of an answer at most.
        nll: gets a list for every conversation, with the nats of each of its tokens from the second to
            the last one before the last question, whoever said it.

    Returns:
        None for an answer that the `full` policy has no room for in the model's window.

    Raises:
        BudgetError: more is pinned than may be.
        GenerationError: the model's logits cannot be chosen from.
    """
    reader = _Reader(Runner(loaded, cache))
    eos = reader.runner.eos
    found: list[list[str | None]] = [[None] * sum(feed.asks for feed in script.feeds) for script in scripts]
    # Long ones first: the last under way are then short, and few calls have few rows.
    order = sorted(range(len(scripts)), key=lambda number: -scripts[number].tokens)
    waiting = [
        _Row(scripts[number], _pieces(scripts[number], cache), found[number], reader.begun(scripts[number]))
        for number in order
    ]
    if nll is not None:
        nll += [[] for _ in scripts]
        for row, number in zip(waiting, order, strict=True):
            row.nll = nll[number]
    coming = iter(waiting)
    under_way: list[_Row] = []
    done, total = 0, sum(len(row.pieces) for row in waiting)
    while True:
        under_way += reader.branched(islice(coming, max(0, reader.rows_under_way - len(under_way))))
        if not under_way:
            return found
        group = reader.choose(under_way)
        scores = reader.feed(group)
        if any(row.pieces and isinstance(row.pieces[0], _Question) for row in group):
            reader.leave()
        for row, token in zip(group, _greedy(scores), strict=True):
            if row.question is None or row.pieces:
                continue
            row.answer.append(token)
            if token not in eos and len(row.answer) < tokens:
                row.pieces.append(Feed([token], prompt=False))
            row.answers[row.question] = row.script.text(row.asked, row.answer)
        under_way = [row for row in reader.branched(under_way) if reader.has_room(row)]
        done += sum(row.question is None for row in group)
        tick(min(1.0, done / max(1, total)))


def _pieces(script: Script, cache: H2OCache) -> deque[Feed | _Question]:
    """The calls that the model gets."""
    everything = not cache.plan.shares.bounded
    pieces: deque[Feed | _Question] = deque()
    joined: list[int] = []
    number = 0
    for feed in script.feeds:
        if feed.asks:
            pieces += _cut(Feed(joined, True), FULL_CHUNK)
            pieces.append(_Question(number, _cut(replace(feed, asks=False), cache.pass_tokens), feed.recall))
            joined, number = [], number + 1
        elif everything:
            joined += feed.ids
        else:
            pieces += _cut(feed, cache.pass_tokens)
    while pieces and not isinstance(pieces[-1], _Question):
        pieces.pop()  # nothing is asked after it
    return pieces


def _cut(feed: Feed, size: int) -> list[Feed]:
    return [Feed(feed.ids[at : at + size], feed.prompt) for at in range(0, len(feed.ids), size)]


def _without_pins(state: Snapshot) -> Snapshot:
    """With no pins ahead: a branch has other tokens there."""
    (clock,) = state.clocks
    return replace(state, clocks=[replace(clock, pins=frozenset())])


@dataclass(frozen=True)
class _Held:
    """What one row's snapshot holds."""

    state: Snapshot

    def held(self, positions: range) -> float:
        """See `Row.held`."""
        return share_held([part.states["positions"][:, 0] for part in self.state.parts], positions)


def _next_tokens(row: _Row) -> int:
    piece = row.pieces[0]
    assert isinstance(piece, Feed)
    return len(piece.ids)


def _greedy(scores: Tensor) -> list[int]:
    """The likeliest tokens [R] of logits [R, V]."""
    scores = scores.float()
    if bool((torch.isnan(scores) | torch.isposinf(scores)).any()):
        raise GenerationError("The model produced NaN or infinite logits.", "Try --dtype float32.")
    chosen: list[int] = scores.argmax(-1).tolist()
    return chosen


def _surprised(row: _Row, piece: list[int], logits: Tensor) -> None:
    """Adds the nats of a piece, given what was expected before it and the logits [T, V] of its tokens."""
    expected, said = logits[:-1].float(), torch.tensor(piece, device=logits.device)
    if row.expected is None:
        said = said[1:]
    else:
        expected = torch.cat([row.expected[None], expected])
    assert row.nll is not None
    row.nll += torch.nn.functional.cross_entropy(expected, said, reduction="none").tolist()
    row.expected = logits[-1].float().clone()


class _Reader:
    """Chooses the rows that a runner holds, now these, now those."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.inside: list[_Row] = []
        """Rows that the runner holds."""
        plan, loaded = runner.cache.plan, runner.loaded
        slots = plan.shares.budget if plan.shares.bounded else runner.trained.window
        row_bytes = slots * slot_bytes(loaded.sizes, loaded.precision.itemsize)
        self.rows_under_way = max(1, min(UNDER_WAY, STATE_BYTES // row_bytes))

    def begun(self, script: Script) -> Snapshot:
        """A conversation before its first token: what will be protected is known.

        Raises:
            BudgetError: more is pinned than may be.
        """
        cache = self.runner.cache
        cache.reset()
        cache.protect(script.protected, row=0)
        cache.pin(script.pins, row=0)
        return self.runner.take(0)

    def branched(self, rows: Iterable[_Row]) -> list[_Row]:
        """The rows, and beside them those of the questions that come next."""
        mains, branches = list(rows), []
        for row in mains:
            while row.pieces and isinstance(question := row.pieces[0], _Question):
                row.pieces.popleft()
                pieces = question.pieces
                if question.recall:
                    shares = self.runner.cache.plan.shares
                    budget = shares.budget if shares.bounded else None
                    ids = row.script.asked_again(question.number, _Held(row.state), budget)
                    pieces = _cut(Feed(ids, prompt=True), self.runner.cache.pass_tokens)
                branches.append(
                    replace(
                        row,
                        pieces=deque(pieces),
                        state=_without_pins(row.state),
                        question=question.number,
                        asked=[token for piece in pieces for token in piece.ids],
                        answer=[],
                        nll=None,
                        expected=None,
                    )
                )
        return [row for row in mains + branches if row.pieces]

    def has_room(self, row: _Row) -> bool:
        """False where the full cache is at the end of the model's window."""
        return (
            self.runner.cache.plan.shares.bounded or row.fed + _next_tokens(row) <= self.runner.trained.window
        )

    def choose(self, rows: Sequence[_Row]) -> list[_Row]:
        """The rows to feed in one call: those that get most tokens through for the time it takes."""
        kinds: dict[tuple[bool, int], list[_Row]] = {}
        for row in rows:
            piece = row.pieces[0]
            assert isinstance(piece, Feed)
            kinds.setdefault((piece.prompt, row.slots), []).append(row)
        best: list[_Row] = []
        most = 0.0
        for alike in kinds.values():
            alike.sort(key=_next_tokens)
            for end in range(1, len(alike) + 1):
                group = alike[max(0, end - ROWS) : end]
                through = sum(map(_next_tokens, group)) / (CALL_TOKENS + len(group) * _next_tokens(group[-1]))
                if through > most:
                    best, most = group, through
        return best

    def feed(self, group: list[_Row]) -> Tensor:
        """Feeds the next piece of each; logits [R, V] of their last tokens."""
        if group != self.inside:
            self.leave()
            self.runner.hold([row.state for row in group])
            self.inside = group
        feeds = [feed for row in group if isinstance(feed := row.pieces.popleft(), Feed)]
        measured = any(row.nll is not None for row in group)
        pieces = [feed.ids for feed in feeds]
        logits = self.runner.feed(pieces, feeds[0].prompt, all_columns=measured)
        for number, (row, piece) in enumerate(zip(group, pieces, strict=True)):
            row.fed, row.slots = row.fed + len(piece), self.runner.cache.arenas[0].shape[3]
            if row.nll is not None:
                _surprised(row, piece, logits[number, -len(piece) :])
        return logits[:, -1]

    def leave(self) -> None:
        """Gives the rows inside their state."""
        for number, row in enumerate(self.inside):
            row.state = self.runner.take(number, copy=False)
        self.inside = []
