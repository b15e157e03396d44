"""Recall of what is gone and asked for: the real engine with the bundled model."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from scripted import ScriptedEngine
from talk import FACT, GREEDY, TALK, chat_of

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat, pin
from h2o_chat.chat.conversation.going_back import open_another
from h2o_chat.chat.conversation.message import Message, Recalled, fed_text
from h2o_chat.chat.conversation.spans import tokens_of
from h2o_chat.chat.files.export import to_json
from h2o_chat.chat.files.importer import parse
from h2o_chat.chat.recall.index import rarity_of
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.chat.templates.chat_template import literal
from h2o_chat.events.events import Event, Note, Prompt, Said, Turn
from h2o_chat.store import Store

ASKED = "What is my dog called?"
GONE: Any = SimpleNamespace(held=lambda _: 0.0)
"""An engine that holds nothing any more."""


def say(chat: Chat, *texts: str) -> list[Event]:
    """The events of the last of these turns."""
    events: list[Event] = []
    for text in texts:
        events = list(chat.send(text, GREEDY))
    return events


def only(events: list[Event], kind: type[Any]) -> Any:
    (one,) = [event for event in events if isinstance(event, kind)]
    return one


def words(events: list[Event]) -> list[str]:
    """The recalled pieces."""
    return [text for _, text in only(events, Said).recalled]


def test_what_is_gone_and_asked_for_is_recalled(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    events = say(chat, ASKED)
    said = only(events, Said)
    assert (said.text, said.recalled) == (ASKED, [(0, FACT)])
    assert [one.code for one in events if isinstance(one, Note)] == ["recalled"]
    fed = "".join(only(events, Prompt).texts)
    assert fed.index(FACT) < fed.index(ASKED)
    assert "Rexo" in only(events, Turn).text
    assert chat.messages[-2].text == ASKED, "a person sees what was typed"


def test_a_correction_without_the_word_that_is_asked_for_comes_along(loaded: Any) -> None:
    told = "My brother Anselm works at the water board in Delft."
    corrected = "Sorry, I was wrong: my brother works at the post office in Breda, not in Delft."
    chat = chat_of(loaded, budget=256)
    say(chat, told, *TALK, corrected, *TALK * 4)
    assert words(say(chat, "Where does Anselm work?")) == [told, corrected]


def test_a_note_says_what_is_recalled_in_another_conversation_too(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store)
    say(chat, FACT, *TALK)
    assert chat.keeper is not None
    first = chat.keeper.conversation
    chat.clear()
    say(chat, TALK[0])
    assert first is not None
    assert open_another(chat, first)
    assert "recalled" in [one.code for one in say(chat, ASKED) if isinstance(one, Note)]


@pytest.mark.parametrize("others", [{"recall": "off"}, {"policy": "h2o-paper"}, {"budget": 512}])
def test_nothing_is_recalled_where_that_is_off_or_all_is_held(loaded: Any, others: dict[str, Any]) -> None:
    chat = chat_of(loaded, **others)
    say(chat, FACT, *TALK)
    assert words(say(chat, ASKED)) == []


@pytest.mark.parametrize("text", ["My dog is called Rexo, I said.", "Who wrote Hamlet?", "Rexo?"])
def test_what_asks_for_nothing_told_is_fed_as_it_is(loaded: Any, text: str) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    assert words(say(chat, text)) == []


def test_a_fact_and_its_correction_come_in_the_order_in_which_they_were_said(loaded: Any) -> None:
    """Though the correction is held: else the old fact alone would stand next to the question."""
    chat = chat_of(loaded, budget=96)
    correction = "No, I was wrong, my dog is called Bello."
    say(chat, FACT, *TALK, *TALK, correction)
    assert chat.engine.held(tokens_of(chat.messages[-2])) == 1.0
    assert words(say(chat, ASKED)) == [FACT, correction]


@pytest.mark.parametrize(("budget", "most"), [(64, 32), (96, 48), (256, 64)])
def test_as_much_is_recalled_as_fits_into_a_share_of_the_budget(loaded: Any, budget: int, most: int) -> None:
    count = lambda text: len(literal(loaded.tokenizer, text))  # noqa: E731
    said = [f"My locker number in house {number} is {number * 37}." for number in range(5)]
    messages = [Message("user", text, at, at) for at, text in enumerate([*said, *OTHERS])]
    recalled, *_ = Recall(count).for_message("What is my locker number?", messages, GONE, Settings(), budget)
    tokens = sum(count(one.words) for one in recalled)
    assert most - max(map(count, said)) < tokens <= most or len(recalled) == len(said)
    assert [one.index for one in recalled] == sorted(one.index for one in recalled)
    assert recalled[-1].words == said[-1], "newer ones win ties"


def test_of_a_pasted_page_the_line_that_is_gone_is_recalled(loaded: Any) -> None:
    """Most of the page is held, its beginning is not."""
    page = "\n".join([FACT, *TALK, *TALK[:1], "My parrot is called Zuko."])
    chat = chat_of(loaded, policy="window", budget=96)
    say(chat, page)
    tokens = tokens_of(chat.messages[0])
    assert 0.5 < chat.engine.held(tokens) < 0.95
    assert chat.engine.held(tokens[:10]) == 0
    assert words(say(chat, "What is my parrot called?")) == []
    said = only(say(chat, ASKED), Said)
    assert FACT in said.recalled[0][1]
    assert said.recalled[0][0] == 0


def test_a_page_with_a_question_at_its_end_has_recalled_what_will_be_gone(loaded: Any) -> None:
    page = f"{FACT} {' '.join(TALK * 5)} "
    chat = chat_of(loaded, budget=96)
    events = say(chat, page + ASKED)
    assert len(page) > 1000
    [(place, text)] = only(events, Said).recalled
    assert (place, FACT in text) == (0, True)
    fed = "".join(only(events, Prompt).texts)
    assert fed.index(TALK[-1][-20:]) < fed.rindex(FACT) < fed.index(ASKED), (
        "between the page and the question"
    )
    short = chat_of(loaded, budget=1024)
    assert words(say(short, page + ASKED)) == [], "the page fits"


def test_it_is_not_recalled_while_it_is_held_from_the_last_time(loaded: Any) -> None:
    chat = chat_of(loaded, budget=96)
    say(chat, FACT, *TALK, *TALK)
    assert words(say(chat, ASKED)) == [FACT]
    assert words(say(chat, ASKED)) == []


def test_what_is_pinned_is_held_and_not_recalled(loaded: Any) -> None:
    chat = chat_of(loaded, budget=128)
    list(chat.send(FACT, GREEDY, pin=True))
    assert words(say(chat, *TALK, *TALK, ASKED)) == []
    list(pin(chat, 0, on=False))
    assert words(say(chat, *TALK, *TALK, ASKED)) == [FACT]


OTHERS = [f"The {one} is nice in the summer, they say." for one in ("sea", "sky", "sun", "park")] * 6
"""Said in between, too."""


def test_answers_of_the_model_are_recalled_too_and_it_is_said_whose_they_are() -> None:
    said = [Message("user", "Name a dish.", 0, 1), Message("assistant", "Zander with saffron rice.", 2, 3)]
    said += [Message("user", text, at, at) for at, text in enumerate(OTHERS, 4)]
    question = "With which rice is the zander?"
    (one,), fed, _ = Recall().for_message(question, said, GONE, Settings(), 512)
    assert (one.index, one.by_user) == (1, False)
    assert "You" in fed[: fed.index("Zander")]


HOUSES = [
    f"In the house of the {owner} a {animal} sleeps behind the {place} every night, and nobody may go"
    f" into the {place} before the {animal} has had its breakfast of oats and milk."
    for owner, animal, place in (
        ("miller", "badger", "oven"),
        ("baker", "heron", "piano"),
        ("sexton", "weasel", "cupboard"),
        ("widow", "otter", "staircase"),
    )
]


def test_of_many_pieces_the_one_closest_to_the_answer_is_shown(loaded: Any) -> None:
    many = [Recalled(0, text, True) for text in HOUSES]
    for number, answer in enumerate(
        ("A badger.", "Behind the piano!", "the SEXTON", "An otter, by the stairs.")
    ):
        (note,) = Recall().closest(answer, many)
        assert HOUSES[number] in note.message
        assert (note.code, note.about) == ("closest", 0)
    assert list(Recall().closest("Giraffes!", many)) == []
    assert list(Recall().closest("A badger.", many[:1])) == [], "that one is shown already"
    engine: Any = ScriptedEngine(loaded.tokenizer, "It sleeps behind the staircase.")
    engine.session, engine.held = replace(engine.session, budget=2048), GONE.held
    chat = Chat(engine, Settings())
    said = " ".join([*HOUSES, *OTHERS]), "Which animal sleeps in the house of the widow, miller, sexton?"
    events = say(chat, *said)
    first, then = (one for one in events if isinstance(one, Note))
    assert HOUSES[3] not in first.message, "too many to be read"
    assert HOUSES[3] in then.message


def test_by_hand_it_goes_in_front_of_the_next_message_alone(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off")
    say(chat, FACT, *TALK)
    note = chat.recall.by_hand("dog called", chat.messages, 48)
    assert (note.code, note.about) == ("recalled", 0)
    assert words(say(chat, "Tell me a story.")) == [FACT]
    assert words(say(chat, "Tell me a story.")) == []
    chat.recall.by_hand("dog called", chat.messages, 48)
    chat.clear()
    assert (chat.messages, chat.engine.seen) == ([], 0)
    assert words(say(chat, "Hello.")) == [], "it was said in another conversation"
    with pytest.raises(UsageError, match="'zebra'"):
        chat.recall.by_hand("zebra", chat.messages, 48)


def test_by_hand_the_last_one_goes_and_it_is_said_what_does_not(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off")
    say(chat, FACT, "My locker code is K7Q2.", *TALK)
    chat.recall.by_hand("dog called", chat.messages, 48)
    same = chat.recall.by_hand("dog", chat.messages, 48)
    assert same.message == f"#1 “{FACT}” goes in front of your next message."
    other = chat.recall.by_hand("locker", chat.messages, 48)
    assert other.message.endswith("goes in front of your next message, instead of #1.")
    assert words(say(chat, "Tell me a story.")) == ["My locker code is K7Q2."]
    again = chat.recall.by_hand("dog", chat.messages, 48)
    assert "instead" not in again.message, "nothing waits any more"


def test_by_hand_it_waits_for_a_message_that_is_read_and_counts_where_that_is_pinned(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off", budget=64)
    say(chat, FACT, *TALK)
    chat.recall.by_hand("dog called", chat.messages, 48)
    with pytest.raises(BudgetError, match="at most 18 may be protected") as refused:
        list(chat.send("Tell me a story.", GREEDY, pin=True))
    assert "what is recalled with it" in refused.value.hint
    list(chat.send("Tell me a story.", GREEDY, lambda: True))
    assert words(say(chat, "Tell me a story.")) == [FACT], "neither was said"


def test_by_hand_it_waits_on_another_branch_too_where_it_was_said(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store, recall="off")
    say(chat, FACT, *TALK)
    chat.recall.by_hand("dog called", chat.messages, 48)
    assert words(list(going_back.edit(chat, 6, "Tell me a story.", GREEDY))) == [FACT]


def test_a_message_that_is_refused_leaves_no_note(loaded: Any) -> None:
    chat = chat_of(loaded, budget=64)
    say(chat, FACT, *TALK)
    with pytest.raises(BudgetError):
        list(chat.send(ASKED, GREEDY, pin=True))
    assert list(chat.take_notes()) == []


def test_what_is_recalled_stands_in_front_of_a_file() -> None:
    file = f"@notes.py\n```\n{'x = 1  # a line of code' * 60}\n```"
    assert fed_text(file, [Recalled(0, FACT)]).startswith(f"Context: {FACT}\n\nQuestion: @notes.py")


def test_a_page_that_is_pasted_twice_is_recalled_once() -> None:
    page = f"{FACT} {' '.join(OTHERS * 3)}\n\n{ASKED}"
    recalled, *_ = Recall().for_message(page, [Message("user", page, 0, 900)], GONE, Settings(), 512)
    texts = [one.words for one in recalled]
    assert len(texts) == len(set(texts)) > 0


@pytest.mark.parametrize("words", ["", " "])
def test_by_hand_without_a_word_says_what_to_type(loaded: Any, words: str) -> None:
    with pytest.raises(UsageError, match=r"^Which words\?") as refused:
        chat_of(loaded).recall.by_hand(words, [], 48)
    assert "/recall WORDS" in refused.value.hint


def test_it_is_stored_and_goes_on_token_for_token(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store)
    say(chat, FACT, *TALK, ASKED)
    assert chat.keeper is not None
    conversation = chat.keeper.conversation
    chat.keeper.close()
    assert conversation is not None
    after = only(say(chat_of_resumed(loaded, store, conversation), "Thank you."), Turn).text
    again = chat_of_resumed(loaded, store, conversation, leaf=10)
    asked = again.messages[-2]
    assert [(one.words, one.index) for one in asked.recalled] == [(FACT, 0)]
    assert only(say(again, "Thank you."), Turn).text == after
    (imported,) = parse(to_json(store.whole(conversation)).encode(), "file.json")
    assert [one.text for one in imported.messages] == [one.text for one in store.whole(conversation).messages]
    exported = json.loads(to_json(store.whole(conversation)))["messages"]
    assert [one["recalled"] for one in exported if "recalled" in one] == [[[int(exported[0]["id"]), FACT]]]


def chat_of_resumed(loaded: Any, store: Store, conversation: str, leaf: int | None = None) -> Chat:
    chat = chat_of(loaded, store, conversation)
    assert chat.resume(lambda _: None, leaf=leaf)
    assert chat.keeper is not None
    chat.keeper.close()
    chat.keeper = None
    return chat


def test_another_branch_knows_only_its_own_words(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store)
    say(chat, "Hello.", FACT, *TALK)
    assert chat.go_to(2)
    say(chat, "My dog is called Milo.", *TALK)
    assert words(say(chat, ASKED)) == ["My dog is called Milo."]
    chat.close()


def test_the_words_of_a_page_are_looked_for_among_its_tokens(loaded: Any) -> None:
    """Codes have a token a letter: by its characters the fact would lie far from where it does."""
    codes = " ".join(f"The code of room {room} is {room}XK7QVW2B9Z{room}." for room in range(100, 112))
    fact, rest = "My dog is called Rexo.", "Some people say that tea and music go well together. " * 8
    page = f"{codes} {fact} {rest}".strip()
    count = lambda text: len(literal(loaded.tokenizer, text))  # noqa: E731
    asked_for = list[range]()

    def held(positions: range) -> float:
        asked_for.append(positions)
        return 0.0

    seen: Any = SimpleNamespace(held=held)
    message = Message("user", page, 3, 3 + count(page) - 1)
    (again,), *_ = Recall(count).for_message(ASKED, [message], seen, Settings(), 512)
    assert fact in again.words
    before = page[: page.index(again.words)]
    begins, ends = 3 + count(before), 3 + count(before + again.words)
    assert any(abs(one.start - begins) <= 1 and abs(one.stop - ends) <= 1 for one in asked_for)
    by_letters = 3 + len(before) * count(page) // len(page)
    assert abs(by_letters - begins) > 20


def test_the_closest_of_many_pieces_is_found_without_spaces_too() -> None:
    sentence = "我的狗第{}天去了公园看见很多鸟和树叶还有小河与老桥以及远处的山。"
    page = "我的猫叫小虎。" + "".join(sentence.format(number) for number in range(300))
    found, _, notes = Recall().for_message(f"{page}\n\n我的猫叫什么？", [], GONE, Settings(), 4000)
    assert len(found) > 4
    assert "我的狗" not in notes[0].message, "too many to be read"
    (note,) = Recall().closest("你的猫叫小虎。", found)
    assert "我的猫叫小虎" in note.message
    assert len(notes[0].message) < sum(len(one.words) for one in found)


def test_of_a_page_without_spaces_the_line_that_is_gone_is_recalled() -> None:
    """Its pieces are joined by spaces that it does not have."""
    page = "今天去了公园。" * 60 + "我的狗叫小黑。它很大。" + "今天去了公园。" * 60
    at = page.find("我的狗")
    all_but_the_fact: Any = SimpleNamespace(held=lambda positions: at not in positions)
    message = Message("user", page, 0, len(page) - 1)
    (again,), *_ = Recall().for_message("我的狗叫什么？", [message], all_but_the_fact, Settings(), 1000)
    assert "我的狗叫小黑。" in again.words


def test_answers_about_a_page_are_no_passages_of_it(loaded: Any) -> None:
    """A wrong answer says the question's words once more, and would be believed the next time."""
    day = "On day {} they walked through the valley, rested under the trees and said little to each other. "
    page = f"{''.join(map(day.format, range(40)))}An old sailor sold them the amber compass for eleven marks."
    said = [Message("user", page, 0, 1999), Message("user", "Who sold them the amber compass?", 2000, 2009)]
    said.append(Message("assistant", "A farmer of the valley sold them the amber compass.", 2010, 2020))
    recall = Recall(rarity=lambda text: rarity_of(literal(loaded.tokenizer, text)))
    found, *_ = recall.for_message("Who sold them the amber compass?", said, GONE, Settings(), 2048)
    assert any("old sailor" in one.words for one in found)
    assert all(one.by_user for one in found)


def test_what_was_said_beside_a_page_does_not_hide_it(loaded: Any) -> None:
    """A short message that shared a little with the question stood first, and the whole page was left out."""
    day = (
        "On day {} they walked on through the valley, rested under the trees and said little to each other. "
    )
    story = "".join(map(day.format, range(40)))
    page = f"{story}An old sailor sold them the amber compass for eleven marks. {story}"
    asked = (
        "Which harbour, which amber lantern, and which windmills did the sailor of the compass mention to his"
        " grandmother, and whom else?"
    )
    beside = Message("user", "The harbour has a lantern and windmills.", 2000, 2010)
    recall = Recall(rarity=lambda text: rarity_of(literal(loaded.tokenizer, text)))
    for said in ([], [beside]):
        found, *_ = recall.for_message(asked, [Message("user", page, 0, 1999), *said], GONE, Settings(), 2048)
        assert any("eleven marks" in one.words for one in found)


def test_a_correction_is_not_crowded_out_by_what_shares_less_with_the_question() -> None:
    told = "My brother Anselm has work at the harbour in Delft."
    told_more = [f"Anselm {does}, and nobody has to like it at work." for does in ("sings", "cooks")]
    corrected = "Sorry, I was wrong: my brother has work at the harbour in Breda."
    said = [Message("user", one, at, at) for at, one in enumerate([told, *told_more, corrected, *OTHERS])]
    recalled, *_ = Recall(count=len).for_message("Where does Anselm work?", said, GONE, Settings(), 4 * 160)
    texts = [one.words for one in recalled]
    assert texts[0] == told
    assert texts[-1] == corrected
