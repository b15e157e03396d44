"""Searches what lies outside of a conversation for a question: remembered facts, other conversations."""

from itertools import accumulate
from textwrap import shorten

from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.files.export import when
from h2o_chat.chat.recall.index import Hit, Index, Piece, Rarity
from h2o_chat.store import Fact, SaidElsewhere

MESSAGES_ELSEWHERE, CHARACTERS_ELSEWHERE = 20_000, 2_000_000
"""Messages of other conversations that are looked through, the newest ones, and their characters: taking them
in takes a second."""
TITLE_CHARACTERS = 30
"""Characters of a conversation's title that the model reads with its words."""


class Elsewhere:
    def __init__(self, keeper: Keeper, rarity: Rarity) -> None:
        self._store, self._keeper, self._rarity = keeper.store, keeper, rarity
        self._known: tuple[object, Index, list[Fact | SaidElsewhere]] | None = None
        """The facts and conversations that it was made from, the index, the source of each message in it."""

    def find(self, question: str, others: bool) -> list[Hit]:
        """Finds what shares a rare word with a question, each text once; the best comes first.

        Args:
            others: other conversations are searched too, not the facts alone.
        """
        facts = self._store.facts.all()
        if not question or not (facts or others):
            return []
        index, each = self._index(facts)
        found = dict[str, Hit]()
        for hit in index.find(question):
            source = each[hit.piece.message]
            if others or isinstance(source, Fact):
                number = hit.piece.message - len(each)
                found.setdefault(hit.piece.text, _hit(number, source, hit.piece.text, hit.score))
        return list(found.values())

    def facts(self) -> list[Hit]:
        """All remembered facts, the newest first, with no score."""
        facts = self._store.facts.all()
        return [_hit(number, facts[number], facts[number].text) for number in range(-1, -1 - len(facts), -1)]

    def _index(self, facts: list[Fact]) -> tuple[Index, list[Fact | SaidElsewhere]]:
        """All of it: also where facts alone are wanted, the others tell which words are rare."""
        own = self._keeper.conversation
        made_from = facts, [(one.id, one.updated) for one in self._store.list() if one.id != own]
        if self._known is None or self._known[0] != made_from:
            others = self._store.facts.said_elsewhere(own, MESSAGES_ELSEWHERE)
            sizes = accumulate(len(one.text) for one in reversed(others))
            looked_at = sum(size <= CHARACTERS_ELSEWHERE for size in sizes)
            each: list[Fact | SaidElsewhere] = [*others[len(others) - looked_at :], *facts]
            index = Index(self._rarity)
            for number, one in enumerate(each):
                index.add(number, one.text, user=True)
            self._known = made_from, index, each
        return self._known[1:]


def _hit(number: int, source: Fact | SaidElsewhere, text: str, score: float = 0.0) -> Hit:
    """A hit that names its source; `number`, below 0, tells which was said first."""
    named = "remembered"
    if isinstance(source, SaidElsewhere):
        named = f"from “{shorten(source.title, TITLE_CHARACTERS, placeholder='…')}”,"
    return Hit(number, Piece(-1, f"({named} {when(source.created).split()[0]}) {text}", user=True), score)
