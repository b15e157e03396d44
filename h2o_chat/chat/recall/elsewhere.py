"""Searches what lies outside of a conversation for a question: remembered facts, other conversations."""

from textwrap import shorten

from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.files.export import when
from h2o_chat.chat.recall.index import Index
from h2o_chat.store import Fact, SaidElsewhere

NEWEST = 20_000
"""Messages of other conversations that are looked through, the newest ones; taking them in takes a second."""

TITLE_CHARACTERS = 30
"""Characters of a conversation's title that the model reads with its words."""


class Elsewhere:
    """Looks through the store of a conversation, but for the conversation itself."""

    def __init__(self, keeper: Keeper) -> None:
        self._store, self._keeper = keeper.store, keeper
        self._known: tuple[object, Index, list[Fact | SaidElsewhere]] | None = None
        """The conversation and facts that it was made from, the index, the source of each message in it."""

    def find(self, question: str, others: bool) -> list[tuple[float, str]]:
        """Finds what shares a rare word with a question: (score, see `Hit`; a piece, its source in front).

        The best comes first, each text once.

        Args:
            others: other conversations are searched too, not the facts alone.
        """
        facts = self._store.facts.all()
        if not facts and not others:
            return []
        index, each = self._index(facts)
        there = {one.id for one in self._store.list()}  # some may have been removed since
        found = dict[str, tuple[float, str]]()
        for hit in index.find(question):
            of = each[hit.piece.message]
            if isinstance(of, Fact) or (others and of.conversation in there):
                found.setdefault(hit.piece.text, (hit.score, f"({_source(of)}) {hit.piece.text}"))
        return list(found.values())

    def _index(self, facts: list[Fact]) -> tuple[Index, list[Fact | SaidElsewhere]]:
        """All of it: also where facts alone are wanted, the others tell which words are rare."""
        made_from = self._keeper.conversation, facts
        if self._known is None or self._known[0] != made_from:
            each: list[Fact | SaidElsewhere] = [
                *self._store.facts.said_elsewhere(made_from[0], NEWEST),
                *facts,
            ]
            index = Index()
            for number, one in enumerate(each):
                index.add(number, one.text, user=True)
            self._known = made_from, index, each
        return self._known[1], self._known[2]


def _source(of: Fact | SaidElsewhere) -> str:
    day, *_ = when(of.created).split()
    if isinstance(of, Fact):
        return f"remembered {day}"
    title = shorten(of.title, TITLE_CHARACTERS, placeholder="…")
    return f"from “{title}”, {day}"
