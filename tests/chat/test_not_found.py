"""Where a question asks for what was never told, it is said that nothing was found; of nothing else."""

import pytest
from talk import TALK

from h2o_chat.base.config import Settings
from h2o_chat.chat.message import Message
from h2o_chat.chat.recalling import Recall
from h2o_chat.events.events import Note


class Share:
    """An engine that holds so much of everything."""

    def __init__(self, share: float) -> None:
        self.share = share

    def held(self, positions: range) -> float:
        return self.share


def marked(asked: str, *said: str, held: float = 0.0) -> list[Note]:
    """What is noted of a question after this."""
    notes = list[Note]()
    messages = [Message("user", text, at, at) for at, text in enumerate((*said, *TALK))]
    Recall(notes).before(asked, messages, Share(held), Settings())
    return notes


@pytest.mark.parametrize(
    "asked",
    [
        "Do I take sugar in my tea?",
        "Am I married?",
        "Is my sister married?",
        "Which vegetable can't I stand?",
        "Why did I leave the choir?",
        "the name of my old piano teacher, please",
        "my sister, where does she live now",
        "I had a number for my uncle in Mersin. what was it?",
        "I had a number for my uncle in Mersin. what was it",
        "What is my parrot called? You know?",
    ],
)
def test_what_was_never_told_is_marked_however_it_is_asked(asked: str) -> None:
    assert [note.code for note in marked(asked)] == ["gone"]


def test_where_nothing_was_evicted_it_is_said_so() -> None:
    (gone,), (held,) = marked("What is my parrot called?"), marked("What is my parrot called?", held=1.0)
    assert gone.message.endswith("the answer may be a guess.")
    assert held.message.endswith("may be known, else the answer is a guess.")
    assert (gone.code, held.code) == ("gone", "gone")


@pytest.mark.parametrize(
    ("asked", "said", "codes"),
    [
        ("Where does Milo live?", "My cousin Milo has a boat.", ["gone"]),
        ("Where does Milo live?", "My cousin Milo lives in Bonn.", ["recalled"]),
        ("When is Uncle Bob's birthday?", "I went for a walk with Uncle Bob.", ["gone"]),
        ("Where does Milo live?", "Milo is a nice name.", []),
        ("How big is Paris?", "I live in Paris.", []),
        ("Where did Mozart live?", "The train was late.", []),
    ],
)
def test_a_question_about_somebody_whom_the_person_has_named_is_hers(
    asked: str, said: str, codes: list[str]
) -> None:
    assert [note.code for note in marked(asked, said)] == codes


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The one who taught me to swim was my aunt Rosa.", "Who taught me to swim?"),
        ("The number of my locker: 4821", "What is the number of my locker?"),
        ("My middle name, which I hate, is Egbert.", "What is my middle name?"),
        ("Which reminds me, my sister's birthday is in May.", "When is my sister's birthday?"),
        ("I wrote down which gate my plane leaves from: B42.", "Which gate does my plane leave from?"),
        ("My daughter April is seven.", "What is my daughter called?"),
        ("My brother Will is seven.", "What is my brother called?"),
        ("My boss is my uncle.", "Who is my boss?"),
        ("My landlord is the baker downstairs.", "Who is my landlord?"),
    ],
)
def test_what_tells_something_is_found_however_it_is_built(said: str, asked: str) -> None:
    """Each was taken for a request, or for nobody's name, when questions were first learned."""
    assert [note.code for note in marked(asked, said)] == ["recalled"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("How old is Madonna?", "I love Madonna."),
        ("When was Windows released?", "I use Windows."),
        ("How big is London?", "We visited London."),
        ("Who owns Facebook?", "My mother uses Facebook."),
        ("What helps against Parkinson?", "My father has Parkinson."),
        ("Who is Milo?", "Milo is my cousin."),
        ("Where did I park? Anyway, how long do I boil an egg?", "I like eggs."),
        ("My wife left me. Now what?", "I like tea."),
        ("My son wants a drone. Which one?", "I like tea."),
        ("I moved to Bonn in May. Which was nice.", "I like tea."),
    ],
)
def test_what_the_world_knows_is_not_asked_of_the_person(asked: str, said: str) -> None:
    assert "gone" not in [note.code for note in marked(asked, said)]


def test_of_the_first_one_nothing_is_told_by_the_one_of_now() -> None:
    assert [note.code for note in marked("What colour was my first car?", "My car is green.")] == ["doubtful"]
    assert [note.code for note in marked("What colour is my car?", "My car is green.")] == ["recalled"]
    asked = "What was I called before I entered the convent?"
    assert [note.code for note in marked(asked, "My name is Ann.")] == ["doubtful"]
    assert [note.code for note in marked("What am I called?", "My name is Ann.")] == ["recalled"]
