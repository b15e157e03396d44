"""Counting what messages hold takes as long in a long conversation as in a short one."""

import random
from collections.abc import Iterator

from h2o_chat.chat.conversation.message import Holds, Message
from h2o_chat.events.events import CacheState

TURNS = 500


class Counted(list[Message]):
    """Messages, and how often one was looked at."""

    looks = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looks += 1
            yield message


def state(changed: dict[int, float]) -> CacheState:
    return CacheState(0, 8, 0, 0, 0.0, {}, [], [(at, hold, 0.0) for at, hold in changed.items()], [])


def test_a_turn_looks_at_few_messages() -> None:
    messages, holds = Counted(), Holds()
    looks = []
    for turn in range(TURNS):
        messages += [
            Message("user", "", 2 * turn, 2 * turn),
            Message("assistant", "", 2 * turn + 1, 2 * turn + 1),
        ]
        holds.take(state({2 * turn: 1.0, 2 * turn + 1: 0.5} | ({2 * turn - 8: 0.0} if turn > 8 else {})))
        before = messages.looks
        holds.share_out(messages, 2 * turn + 2)
        looks.append(messages.looks - before)
    assert max(looks[-100:]) < 2 * (2 * TURNS + 100), "half of all tokens are held here"
    sparse = Holds()
    sparse.share_out(messages, 2 * TURNS)
    sparse.take(state({0: 1.0}))
    before = messages.looks
    sparse.share_out(messages, 2 * TURNS)
    assert messages.looks - before < 20


def test_whatever_happens_they_hold_what_is_counted_anew() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        system = [Message("system", "")] if chance.random() < 0.5 else []
        messages, holds, at = [*system], Holds(), 0
        held: dict[int, float] = {}
        for _ in range(12):
            pair = [Message("user", ""), Message("assistant", "")]
            messages += pair
            how = chance.choice(["ends", "ends", "fails", "withdrawn"])
            if how == "ends":
                for message in [*[one for one in system if one.first < 0], *pair]:
                    size = chance.randint(1, 3)
                    message.first, message.last, at = at, at + size - 1, at + size
            elif how == "withdrawn":
                del messages[-2:]
            news = {chance.randrange(at): chance.choice([0.0, 0.5, 1.0]) for _ in range(4)} if at else {}
            held |= news
            holds.take(state(news))
            told = holds.share_out(messages, at)
            expected = []
            for index, message in enumerate(messages):
                if message.first >= 0:
                    tokens = range(message.first, message.last + 1)
                    hold = sum(held.get(token, 0.0) for token in tokens) / len(tokens)
                    assert message.hold == hold
                    if any(held.get(token, 0.0) > 0 for token in tokens):
                        expected.append((index, hold))
            assert told == expected
