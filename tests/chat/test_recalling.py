"""What is gone and asked for is told to the model again: the real engine with the bundled model."""

import json
from dataclasses import replace
from typing import Any

import opened_models
import pytest
from talk import FACT, GREEDY, POCKET, TALK

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.export import to_json
from h2o_chat.chat.importer import parse
from h2o_chat.chat.keeping import Keeper
from h2o_chat.chat.message import Message
from h2o_chat.chat.pins import pin
from h2o_chat.chat.recalling import Recall
from h2o_chat.chat.spans import tokens_of
from h2o_chat.chat.templates import literal
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Note, Prompt, Said, Turn
from h2o_chat.store import Store

ASKED = "What is my dog called?"


@pytest.fixture(scope="module")
def loaded() -> Any:
    return opened_models.loaded(Settings(model=str(POCKET), threads=1))


def chat_of(loaded: Any, store: Store | None = None, conversation: str | None = None, **others: Any) -> Chat:
    settings = replace(Settings(model=str(POCKET), budget=48, seed=0), **others)
    engine = Engine(loaded, settings)
    keeper = Keeper(store, conversation, engine.session, {}) if store else None
    return Chat(engine, settings, keeper)


def say(chat: Chat, *texts: str) -> list[Event]:
    """The events of the last of these turns."""
    events: list[Event] = []
    for text in texts:
        events = list(chat.send(text, GREEDY))
    return events


def only(events: list[Event], kind: type[Any]) -> Any:
    (one,) = [event for event in events if isinstance(event, kind)]
    return one


def test_what_is_gone_and_asked_for_is_told_again(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    events = say(chat, ASKED)
    said = only(events, Said)
    assert (said.text, said.recalled, said.recalled_from) == (ASKED, FACT, 0)
    assert [one.code for one in events if isinstance(one, Note)] == ["recalled"]
    assert f"I said before: {FACT} {ASKED}" in "".join(only(events, Prompt).texts)
    assert "Rexo" in only(events, Turn).text
    assert chat.messages[-2].text == ASKED, "a person sees what was typed"


@pytest.mark.parametrize("others", [{"recall": "off"}, {"policy": "h2o-paper"}, {"budget": 512}])
def test_nothing_is_told_again_where_that_is_off_or_all_is_held(loaded: Any, others: dict[str, Any]) -> None:
    chat = chat_of(loaded, **others)
    say(chat, FACT, *TALK)
    assert only(say(chat, ASKED), Said).recalled == ""


def test_a_message_that_asks_nothing_is_fed_as_it_is(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    assert only(say(chat, "My dog is called Rexo, I said."), Said).recalled == ""


def test_a_long_message_brings_with_it_what_it_asks_about(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    assert only(say(chat, "Read this. " * 100 + ASKED), Said).recalled == ""


def test_of_a_pasted_page_the_line_that_is_gone_is_told_again(loaded: Any) -> None:
    """Most of the page is held, its beginning is not."""
    found = "We found him in the harbour last winter, under a boat."
    page = "\n".join([f"{FACT} {found}", *TALK, "My parrot is called Zuko."])
    chat = chat_of(loaded, policy="window", budget=96)
    say(chat, page)
    tokens = tokens_of(chat.messages[0])
    assert 0.5 < chat.engine.held(tokens) < 0.9
    assert chat.engine.held(tokens[:20]) == 0
    assert only(say(chat, "What is my parrot called?"), Said).recalled == ""
    said = only(say(chat, ASKED), Said)
    assert said.recalled.startswith(FACT)
    assert said.recalled_from == 0


def test_it_is_not_told_again_while_it_is_held_from_the_last_time(loaded: Any) -> None:
    chat = chat_of(loaded, budget=96)
    say(chat, FACT, *TALK, *TALK)
    assert only(say(chat, ASKED), Said).recalled == FACT
    assert only(say(chat, ASKED), Said).recalled == ""


def test_what_is_pinned_is_told_again_from_far_back_though_it_is_held(loaded: Any) -> None:
    chat = chat_of(loaded, budget=512)
    list(chat.send(FACT, GREEDY, pin=True))
    assert only(say(chat, ASKED), Said).recalled == "", "it was just said"
    say(chat, *TALK, *TALK)
    events = say(chat, ASKED)
    assert chat.engine.held(tokens_of(chat.messages[0])) == 1.0
    assert (only(events, Said).recalled, only(events, Said).recalled_from) == (FACT, 0)
    (note,) = [event for event in events if isinstance(event, Note)]
    assert note.message == f'#1 "{FACT}" is pinned, but far back: the model is told again.'
    assert only(say(chat, ASKED), Said).recalled == "", "it was just told again"
    say(chat, *TALK, *TALK)
    assert only(say(chat, ASKED), Said).recalled == FACT, "the second time is far back, too"
    list(pin(chat, 0, on=False))
    assert only(say(chat, *TALK, *TALK, ASKED), Said).recalled == "", "it is no longer pinned"


def test_of_a_pinned_message_that_was_forgotten_it_is_said_so(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT, *TALK)
    chat.messages[0].pinned = True  # pinned when little of it was left
    (note,) = [event for event in say(chat, ASKED) if isinstance(event, Note)]
    assert note.message.endswith("was mostly forgotten: the model is told again.")


@pytest.mark.parametrize(("policy", "why"), [("h2o", "was mostly forgotten"), ("window", "was forgotten")])
def test_that_all_is_forgotten_is_said_only_where_nothing_is_left(loaded: Any, policy: str, why: str) -> None:
    chat = chat_of(loaded, policy=policy)
    say(chat, "Hello.", FACT, *TALK)
    left = chat.engine.held(tokens_of(chat.messages[2]))
    assert (left > 0) == (policy == "h2o")
    (note,) = [event for event in say(chat, ASKED) if isinstance(event, Note)]
    assert note.message == f'#3 "{FACT}" {why}: the model is told again.'


def test_by_hand_it_goes_in_front_of_the_next_message_alone(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off")
    say(chat, FACT, *TALK)
    note = chat.recall.by_hand("dog called", chat.messages)
    assert (note.code, note.about) == ("recalled", 0)
    assert only(say(chat, "Tell me a story."), Said).recalled == FACT
    assert only(say(chat, "Tell me a story."), Said).recalled == ""
    chat.recall.by_hand("dog called", chat.messages)
    chat.clear()
    assert only(say(chat, "Hello."), Said).recalled == "", "it was said in another conversation"
    with pytest.raises(UsageError, match="'zebra'"):
        chat.recall.by_hand("zebra", chat.messages)


def test_by_hand_the_last_one_goes_and_it_is_said_what_does_not(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off")
    say(chat, FACT, "My locker code is K7Q2.", *TALK)
    chat.recall.by_hand("dog called", chat.messages)
    same = chat.recall.by_hand("dog", chat.messages)
    assert same.message == f'#1 "{FACT}" goes in front of your next message.'
    other = chat.recall.by_hand("locker", chat.messages)
    assert other.message.endswith("goes in front of your next message, instead of #1.")
    assert only(say(chat, "Tell me a story."), Said).recalled == "My locker code is K7Q2."
    again = chat.recall.by_hand("dog", chat.messages)
    assert "instead" not in again.message, "nothing waits any more"


def test_by_hand_it_waits_for_a_message_that_is_read_and_counts_where_that_is_pinned(loaded: Any) -> None:
    chat = chat_of(loaded, recall="off", budget=64)
    say(chat, FACT, *TALK)
    chat.recall.by_hand("dog called", chat.messages)
    with pytest.raises(BudgetError, match="at most 18 may be protected") as refused:
        list(chat.send("Tell me a story.", GREEDY, pin=True))
    assert " tokens of your message include #1, told again in front." in refused.value.hint
    list(chat.send("Tell me a story.", GREEDY, lambda: True))
    assert only(say(chat, "Tell me a story."), Said).recalled == FACT, "neither was said"


@pytest.mark.parametrize("words", ["", " "])
def test_by_hand_without_a_word_says_what_to_type(loaded: Any, words: str) -> None:
    with pytest.raises(UsageError, match=r"^Which words\?") as refused:
        chat_of(loaded).recall.by_hand(words, [])
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
    assert asked.recalled is not None
    assert (asked.recalled.words, asked.recalled.index) == (FACT, 0)
    assert only(say(again, "Thank you."), Turn).text == after
    (imported,) = parse(to_json(store.whole(conversation)).encode(), "file.json")
    assert [one.text for one in imported.messages] == [one.text for one in store.whole(conversation).messages]
    exported = json.loads(to_json(store.whole(conversation)))["messages"]
    assert [one["recalled"] for one in exported if "recalled" in one] == [FACT]


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
    assert only(say(chat, ASKED), Said).recalled == "My dog is called Milo."
    chat.close()


def gone(events: list[Event]) -> list[int | None]:
    """Of which messages it is said that nothing answers them."""
    return [one.about for one in events if isinstance(one, Note) and one.code == "gone"]


def test_what_was_never_told_is_marked(loaded: Any) -> None:
    chat = chat_of(loaded)
    events = say(chat, FACT, *TALK, "What is my parrot called?")
    assert gone(events) == [8]
    assert only(events, Said).recalled == "", "the dog is no parrot"
    assert [one.event for one in events].index("note") < [one.event for one in events].index("token")


def test_what_is_held_or_told_again_is_not_marked(loaded: Any) -> None:
    chat = chat_of(loaded, budget=512)
    assert not gone(say(chat, FACT, ASKED))
    assert not gone(say(chat_of(loaded), FACT, *TALK, ASKED))


@pytest.mark.parametrize(
    "others", [{"recall": "off"}, {"policy": "h2o-paper"}, {"policy": "full", "budget": 512}]
)
def test_nothing_is_marked_where_nothing_is_looked_up(loaded: Any, others: dict[str, Any]) -> None:
    assert not gone(say(chat_of(loaded, **others), FACT, ASKED.replace("dog", "parrot")))


@pytest.mark.parametrize(
    "text",
    [
        "How do I feed my parrot?",
        "What is a parrot?",
        "My parrot is called Coco. What is my parrot called?",
        "Read this. " * 100 + "What is my parrot called?",
    ],
)
def test_what_asks_for_nothing_told_is_not_marked(loaded: Any, text: str) -> None:
    assert not gone(say(chat_of(loaded), FACT, text))


def test_what_could_not_be_sent_leaves_no_mark(loaded: Any) -> None:
    chat = chat_of(loaded)
    say(chat, FACT)
    with pytest.raises(BudgetError):
        list(chat.send("Look at this. " * 40 + "What is my parrot called?", GREEDY, pin=True))
    assert not gone(say(chat, "Hello."))


def test_the_system_prompt_tells_too(loaded: Any) -> None:
    chat = chat_of(loaded, budget=256, system="The parrot of the person is called Coco.")
    assert not gone(say(chat, FACT, "What is my parrot called?"))
    assert gone(say(chat, "What is my hamster called?")) == [5]


def test_what_was_said_on_another_branch_does_not_count(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store)
    say(chat, "Hello.", FACT)
    assert chat.go_to(2)
    assert gone(say(chat, ASKED)) == [2]
    chat.close()


def test_the_words_of_a_page_are_looked_for_among_its_tokens(loaded: Any) -> None:
    """Codes have a token a letter: by its characters the fact would lie far from where it does."""
    codes = " ".join(f"The code of room {room} is {room}XK7QVW2B9Z{room}." for room in range(100, 112))
    fact, rest = "My dog is called Rexo.", "Some people say that tea and music go well together. " * 8
    page = f"{codes} {fact} {rest}".strip()
    count = lambda text: len(literal(loaded.tokenizer, text))  # noqa: E731
    asked_for = list[range]()

    class Seen:
        def held(self, positions: range) -> float:
            asked_for.append(positions)
            return 0.0

    message = Message("user", page, 3, 3 + count(page) - 1)
    again, _ = Recall([], count).before(ASKED, [message], Seen(), Settings())
    assert again is not None
    assert again.words == fact
    begins, ends = 3 + count(codes), 3 + count(f"{codes} {fact}")
    assert all(abs(one.start - begins) <= 1 and abs(one.stop - ends) <= 1 for one in asked_for)
    by_letters = 3 + len(codes) * count(page) // len(page)
    assert abs(by_letters - begins) > 20


@pytest.mark.parametrize(
    ("fact", "asked", "code"),
    [
        (FACT, ASKED, "recalled"),
        ("I could eat mangoes all day.", "What is my favourite fruit?", "doubtful"),
        ("I'm a plumber.", "What is my job?", "recalled"),
        ("I lost my phone.", "What is my phone number?", "gone"),
    ],
)
def test_what_tells_it_in_other_words_may_not_be_what_is_asked_for(fact: str, asked: str, code: str) -> None:
    """It is told again, and the answer is marked all the same."""

    class Nothing:
        def held(self, positions: range) -> float:
            return 0.0

    notes = list[Note]()
    said = [Message("user", text, at, at) for at, text in enumerate((fact, *TALK))]
    again, _ = Recall(notes).before(asked, said, Nothing(), Settings())
    (note,) = notes
    assert note.code == code
    assert (again is None) == (code == "gone")
    assert note.about == (0 if code == "recalled" else len(said))
    assert ("may not answer" in note.message) == (code == "doubtful")


@pytest.mark.parametrize("asked", ["Is my dog sick?", "Am I pregnant?", "Do I tip in Japan?"])
def test_what_asks_whether_something_is_so_and_nobody_told_is_not_marked(asked: str) -> None:
    class Nothing:
        def held(self, positions: range) -> float:
            return 0.0

    notes = list[Note]()
    said = [Message("user", text, at, at) for at, text in enumerate(TALK)]
    assert Recall(notes).before(asked, said, Nothing(), Settings()) == (None, asked)
    assert notes == []


def test_of_a_page_without_spaces_the_line_that_is_gone_is_told_again() -> None:
    """Its pieces are joined by spaces that it does not have."""
    page = "今天去了公园。" * 60 + "我的狗叫小黑。它很大。" + "今天去了公园。" * 60
    at = page.find("我的狗")

    class AllButTheFact:
        def held(self, positions: range) -> float:
            return 0.0 if positions.start in range(at - 2, at + 3) else 1.0

    message = Message("user", page, 0, len(page) - 1)
    again, _ = Recall([]).before("我的狗叫什么？", [message], AllButTheFact(), Settings())
    assert again is not None
    assert again.words.startswith("我的狗叫小黑。")
