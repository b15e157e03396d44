"""Searches what lies outside of a conversation for a question: remembered facts, other conversations."""

from dataclasses import replace
from textwrap import shorten

from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.files.export import when
from h2o_chat.chat.recall.index import Hit, Index, Piece, Rarity
from h2o_chat.store import Fact, SaidElsewhere

MESSAGES_ELSEWHERE = 20_000
"""Messages of other conversations that are looked through, the newest ones; taking them in takes a second."""
TITLE_CHARACTERS = 30
"""Characters of a conversation's title that the model reads with its words."""


class Elsewhere:
    """Searches what lies outside of a conversation: remembered facts, other conversations.

    Args:
        rarity: see `Index`.
    """

    def __init__(self, keeper: Keeper, rarity: Rarity) -> None:
        self._store, self._keeper, self._rarity = keeper.store, keeper, rarity
        self._known: tuple[object, Index, list[Fact | SaidElsewhere]] | None = None
        """The conversation and facts that it was made from, the index, the source of each message in it."""

    def find(self, question: str, others: bool) -> list[Hit]:
        """Finds what shares a rare word with a question, each text once; the best comes first.

        Args:
            others: other conversations are searched too, not the facts alone.
        """
        facts = self._store.facts.all()
        if not facts and not others:
            return []
        index, each = self._index(facts)
        there = {one.id for one in self._store.list()}  # some may have been removed since
        found = dict[str, Hit]()
        for hit in index.find(question):
            source = each[hit.piece.message]
            if isinstance(source, Fact) or (others and source.conversation in there):
                piece = replace(hit.piece, message=-1, text=f"({_named(source)}) {hit.piece.text}")
                found.setdefault(hit.piece.text, Hit(-1, piece, hit.score))
        return list(found.values())

    def facts(self) -> list[Hit]:
        """All remembered facts, the newest first, with no score."""
        facts = reversed(self._store.facts.all())
        return [Hit(-1, Piece(-1, f"({_named(one)}) {one.text}", user=True), 0.0) for one in facts]

    def _index(self, facts: list[Fact]) -> tuple[Index, list[Fact | SaidElsewhere]]:
        """All of it: also where facts alone are wanted, the others tell which words are rare."""
        made_from = self._keeper.conversation, facts
        if self._known is None or self._known[0] != made_from:
            others = self._store.facts.said_elsewhere(made_from[0], MESSAGES_ELSEWHERE)
            each: list[Fact | SaidElsewhere] = [*others, *facts]
            index = Index(self._rarity)
            for number, one in enumerate(each):
                index.add(number, one.text, user=True)
            self._known = made_from, index, each
        return self._known[1:]


def _named(source: Fact | SaidElsewhere) -> str:
    day = when(source.created).split()[0]
    if isinstance(source, Fact):
        return f"remembered {day}"
    return f"from “{shorten(source.title, TITLE_CHARACTERS, placeholder='…')}”, {day}"
