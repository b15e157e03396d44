"""Which words a memory of tokens holds, as the panel shows them: whole ones, that were said."""

from dataclasses import replace
from sys import getrefcount

import pytest
from screens import SESSION

from h2o_chat.chat.conversation.message import Message, give_texts
from h2o_chat.chat.conversation.spans import Spans
from h2o_chat.chat.memory import in_words, words
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState, Event, Gone, Heavy, Prompt, Said, Token


def known(*texts: str, said: str, role: str = "user") -> words.Words:
    """The words of one message, which consists of these tokens."""
    places = Spans()
    found = words.Words(places)
    for event in (Said(0, "user", said), Prompt(len(texts), 0, len(texts) - 1, 1, 0.0, 0, list(texts))):
        places.add(event)
        found.add(event)
    return found


@pytest.mark.parametrize(
    ("texts", "said", "expected"),
    [
        (["<|user|>", "K", "7", "Q", "2", ".", "<|end|>"], "K7Q2.", ["K7Q2"]),
        (["I", " don", "'t", " go", "—", "oh", "!"], "I don't go—oh!", ["I", "don't", "go", "oh"]),
        (["3", ".", "5", " per", " cent", "."], "3.5 per cent.", ["3.5", "per", "cent"]),
        (["user", "\n", "user", " name", "<|im_end|>"], "user name", ["user", "name"]),
        (["東京", "に", "行く", "。"], "東京に行く。", ["東京", "に", "行く"]),
        (["ne", "", "é", "t"], "neét", ["neét"]),
        (["हि", "न्", "दी", " है"], "हिन्दी है", ["हिन्दी", "है"]),
        ([" K", *["K"] * 40, " a"], "K" * 41 + " a", ["K" * 41, "a"]),
        ([" ", "...", " --", "\n"], "...  --", []),
    ],
)  # fmt: skip
def test_tokens_become_the_words_that_were_said(texts: list[str], said: str, expected: list[str]) -> None:
    found = known(*texts, said=said)
    seen: dict[int, str] = {}
    for position in range(len(texts)):
        if word := found.at(position):
            assert position in word.tokens
            seen[word.first] = word.text
    assert list(seen.values()) == expected


def test_answers_and_their_words_come_token_by_token() -> None:
    places = Spans()
    found = words.Words(places)
    events: list[Event] = [Said(0, "user", "Hi"), Prompt(1, 0, 0, 1, 0.0, 0, ["Hi"])]
    for event in [*events, Token(1, "Pri", 1, 0.0), Token(2, "ya", 2, 0.0), Token(3, " is", 3, 0.0)]:
        places.add(event)
        found.add(event)
    assert [found.at(position).text for position in range(4)] == [  # type: ignore[union-attr]
        *("Hi", "Priya", "Priya", "is")
    ]
    again = Said(1, "user", "Bye")
    places.add(again)
    found.add(again)
    assert found.at(1) is None, "it is on another branch"


def test_no_message_of_a_conversation_that_is_gone_is_held() -> None:
    said = "".join(["My locker", " is here."])  # no constant: others would hold that
    before = getrefcount(said)
    places = Spans()
    found = words.Words(places)
    for event in (Said(0, "user", said), Prompt(9, 0, 8, 1, 0.0)):
        places.add(event)
        found.add(event)
    assert found.at(1, " locker") is not None
    del found, event, places
    assert getrefcount(said) == before


def test_of_an_old_recording_only_whole_words_are_shown() -> None:
    """It has no texts of a prompt's tokens: what is held is known by the text of the token alone."""
    memory = CacheView()
    memory.session = replace(SESSION, budget=8, recent=2, sinks=0, layers=1, kv_heads=2)
    for event in (Said(0, "user", "My locker is here."), Prompt(9, 0, 8, 1, 0.0)):
        memory.add(event)
    heavy = [
        Heavy(at, text, 1.0, 1.0, 1.0, "H")
        for at, text in enumerate((" lock", " here", "<|end|>", ".", " locker"))
    ]
    changed = [(at, 1.0, 1.0) for at in range(5)]
    memory.add(CacheState(9, 8, 1, 2, 0.0, {"H": 5}, heavy, changed, [], gone=[Gone(6, " is", 0.5, 1.0)]))
    assert [held.word.text for held in in_words.remembered(memory)] == ["here", "locker"]
    assert [phrase.text for phrase in in_words.forgotten(memory)] == ["is"]


def test_of_a_long_conversation_the_oldest_words_are_found_and_no_more_is_looked_at() -> None:
    """The cost of drawing depends on what is held, not on how long the conversation is."""
    looked: list[int] = []
    counts = []
    for messages in (20, 2000):
        memory = CacheView()
        memory.session = replace(SESSION, budget=64, recent=8, sinks=0, layers=2, kv_heads=2)
        for index in range(messages):
            texts = [f" word{index}", "s", " and", " more"]
            said = "".join(texts).strip()
            memory.add(Said(index, "user", said))
            memory.add(Prompt(4, 4 * index, 4 * index + 3, 1, 0.0, 0, texts))
        seen = 4 * messages
        changed = [(at, 0.25, 1.0) for at in (*range(0, 12), *range(seen - 8, seen))]
        memory.add(CacheState(seen, 20, 1, 2, 0.0, {"H": 12, "R": 8}, [], changed, []))
        asked = memory.words.at
        looked.clear()
        memory.words.at = lambda at, text="", asked=asked: looked.append(at) or asked(at, text)  # type: ignore
        found = in_words.remembered(memory, 5)
        counts.append(len(looked))
        assert [held.word.text for held in found] == ["word0s", "word1s", "word2s", "and", "more"]
        assert [held.word.index for held in found] == [0, 1, 2, 0, 0], (
            "a word that is everywhere stands once, at the end"
        )
    assert counts[0] == counts[1] <= 12


def test_a_word_is_common_by_what_is_said_now() -> None:
    """One in a hundred of all words, three times at least; an edit takes back what it replaces."""
    memory = CacheView()

    def say(index: int, said: str) -> None:
        memory.add(Said(index, "user", said, first=8 * index, texts=[f" {word}" for word in said.split()]))

    for index in range(4):
        say(index, f"the bike and the boat {index}")
    assert [memory.words.is_common(word) for word in ("The", "bike", "2", "harbour")] == [
        True,
        True,
        False,
        False,
    ]
    say(1, "nothing of it")
    say(2, "or of that")
    assert not memory.words.is_common("bike"), "said once more"
    texts = [" the", " bike"] * 3
    stored = words.Words(Spans(), [Message("user", "".join(texts).strip(), 0, 5, texts=texts)])
    assert stored.is_common("bike"), "as soon as a conversation is opened"


def test_older_messages_that_hold_something_have_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the oldest words of a conversation longer than what is spelt could not be named."""
    monkeypatch.setattr("h2o_chat.chat.conversation.message.MOST_TEXTS", 4)
    monkeypatch.setattr(
        "h2o_chat.chat.conversation.message.texts", lambda _, ids, special: [f"t{one}" for one in ids]
    )
    messages = [Message("assistant", "", 2 * at, 2 * at + 1, hold=hold, id=at + 1)
                for at, hold in enumerate((0.5, 0.0, 0.1, 0.2, 0.0, 0.0))]  # fmt: skip
    give_texts(messages, {at + 1: [2 * at, 2 * at + 1] for at in range(6)}, None)
    assert [bool(message.texts) for message in messages] == [True, False, True, False, True, True]
