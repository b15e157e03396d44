"""What asks for something that only the person can have told, and what tells it."""

import pytest

from h2o_chat.chat.everyday import asked_for
from h2o_chat.chat.finding import NEWEST, Finder
from h2o_chat.chat.personal import wanted
from h2o_chat.chat.told import names, told

TALK = [
    "I have been thinking about trains lately.",
    "The dog of my neighbour is called Fizade.",
    "My friend waited in room number 530.",
    "Find me a film about music for Friday.",
    "I'm heading to work.",
    "What is my parrot called?",
    "I would rather have cooking than bicycles.",
]


def teller(question: str, *said: str) -> str | None:
    """What of this, said amid other talk, tells what is asked for."""
    finder = Finder()
    for index, text in enumerate([*TALK, *said, *TALK]):
        finder.add(index, text)
    what = wanted(question)
    assert what is not None
    found = told(finder, question, what)
    return found.text if found else None


@pytest.mark.parametrize(
    "question",
    [
        "What is my dog called?",
        "What's my room number?",
        "How old is my sister?",
        "Where do I live?",
        "When did I move to Rome?",
        "Hey, do you remember my birthday?",
        "Could you remind me what my door code is?",
        "Did I tell you where my keys are?",
        "What was the number I gave you?",
        "Do I have any cats?",
        "Am I allergic to nuts?",
        "Who am I?",
        "How do I earn my living?",
        "Which town am I going to visit?",
        "Which football club do I support?",
        "Who do I climb with?",
        "Where do I volunteer?",
        "What do I do on Mondays?",
        "Where will my exam be?",
        "How did I break my arm?",
        "Who looks after my fish?",
        "Wie heißt mein Hund?",
        "Weißt du noch, wo ich wohne?",
        "Quel est le nom de mon chien ?",
        "¿Dónde está mi coche?",
        "Как зовут мою собаку?",
        "我的狗叫什么？",
    ],
)
def test_it_is_personal(question: str) -> None:
    assert wanted(question) is not None


@pytest.mark.parametrize(
    "question",
    [
        "How are you?",
        "Who wrote Hamlet?",
        "What is my best option?",
        "How do I fix my car?",
        "Can you help me with my homework?",
        "Should I call my sister?",
        "What do you think of my idea?",
        "What did you do to my house?",
        "Where do I click to change my password?",
        "What do I do if my train is late?",
        "What's wrong with my code?",
        "How many eggs do I need?",
        "Which button do I press to stop my oven?",
        "Who do I contact about my bill?",
        "Am I allowed to park here?",
        "Am I going to fail?",
        "Do I need a visa?",
        "Do I look good in red?",
        "What have I done?",
        "Can I borrow my own book?",
        "Does my plan make sense?",
        "Was soll ich mit meinem Geld machen?",
        "Pourquoi mon chien dort ?",
    ],
)
def test_it_asks_for_advice_or_for_what_others_know(question: str) -> None:
    assert wanted(question) is None


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("My dog is called Rexo.", "What is my dog called?"),
        ("My car is deep grey.", "What colour is my car?"),
        ("I also have a good old dog, Rexo.", "What is my dog called?"),
        ("The spare key is under the mat.", "Where is my spare key?"),
        ("Hi, I'm Ann.", "What is my name?"),
        ("I am 34, by the way.", "How old am I?"),
        ("I studied geology.", "What did I study?"),
        ("I parked the car on level 3.", "Where did I park the car?"),
        ("I speak Polish.", "Which languages do I speak?"),
        ("My boss's name is Lusova.", "What is my boss's name?"),
        ("Mein Hund heißt Rexo.", "Wie heißt mein Hund?"),
        ("我的猫叫小白。", "我的猫叫什么？"),
    ],
)
def test_it_is_told(said: str, question: str) -> None:
    assert teller(question, said) == said


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("My dog is called Rexo.", "Which pet do I have?"),
        ("I'm a plumber.", "What is my job?"),
        ("I speak Turkish.", "What is my language?"),
        ("I could eat mangoes all day.", "What is my favourite fruit?"),
        ("I hate spinach.", "Which vegetable do I dislike?"),
        ("I don't eat meat.", "What is my diet?"),
        ("I put the money under the mattress.", "Where is my cash?"),
        ("My suitcase weighs 30 kilos.", "How heavy is my luggage?"),
        ("I was born on the third of March.", "When is my birthday?"),
        ("You can reach me on 0171 555 21.", "What is my phone number?"),
        ("Write to me at ana@post.org.", "What is my email address?"),
        ("We got hitched in Vegas, Jonas and me.", "Who is my husband?"),
    ],
)
def test_it_is_told_in_other_words(said: str, question: str) -> None:
    """They share no word that says something."""
    assert teller(question, said) == said


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("I have been thinking about dogs lately.", "Which pet do I have?"),
        ("I saw a dog.", "Which pet do I have?"),
        ("I met a plumber.", "What is my job?"),
        ("I feel like a mango today.", "What is my favourite fruit?"),
        ("I lost my phone.", "What is my phone number?"),
        ("My aunt turned 71 last week.", "What is my aunt's job?"),
        ("My wedding was wonderful.", "When is my wedding?"),
        ("My dog is called Rexo.", "What is my parrot called?"),
        ("My boss's name is Lusova.", "What is my name?"),
        ("My locker number is 17.", "What is my room number?"),
        ("I bought the tent for 120 dollars.", "How much did I pay for the canoe?"),
        ("My trainer is called Ines.", "When does my train leave?"),
        ("I put the books on the shelf.", "Where did I buy my bookshelf?"),
        ("I drive an old car.", "How old am I?"),
        ("Her phone rang.", "What is my phone number?"),
        ("My aunt has a green bicycle.", "What colour is my bicycle?"),
    ],
)
def test_what_is_like_it_does_not_tell_it(said: str, question: str) -> None:
    assert teller(question, said) is None


def test_of_two_that_tell_it_the_later_is_meant() -> None:
    said = ("My locker number is 17.", "Sorry, I got that wrong. My locker number is 255.")
    assert teller("What is my locker number?", *said) == said[1]


def test_a_text_names_what_is_wanted() -> None:
    what = wanted("What is my door code?")
    assert what is not None
    assert names("The person's door code is K7.", what)
    assert not names("Answer in one sentence.", what)


def test_no_more_is_looked_at_in_a_long_conversation() -> None:
    finder = Finder()
    for index in range(20_000):
        finder.add(index, f"The dog number {index} is not mine at all.")
    assert len(list(finder.with_any({"dog", "numbe"}))) <= 2 * NEWEST


def test_three_words_of_a_long_question_are_enough() -> None:
    said = "I played chess in an intense tournament."
    question = (
        "Which brothers and noisy strangers did I play in the intense tournament of that gaming convention?"
    )
    assert teller(question, said) == said
    assert teller(question, "I played chess at home.") is None


def test_a_favourite_is_told_only_where_one_of_the_kind_is() -> None:
    talk = ["The museum was closed.", "Museums are big."] * 5
    assert teller("What is my favourite museum?", *talk, "I'm so happy with my new job. I love it.") is None


@pytest.mark.parametrize(
    ("told_", "asked"),
    [
        ("People call me Rusapo.", "Who am I?"),
        ("My parents named me Rusapo.", "What name did I give you?"),
        ("My flat is in Dokila, close to the centre.", "Where do I live?"),
        ("Greetings from Dokila!", "Which town do I live in?"),
        ("By trade I'm a night florist.", "What is my job?"),
        ("I work as a ship painter.", "How do I earn my living?"),
        ("Next month I'm off to Madrid.", "Where am I travelling?"),
        ("We booked a week in Madrid.", "What is my destination?"),
    ],
)
def test_name_job_home_and_trip_are_known_in_many_words(told_: str, asked: str) -> None:
    assert teller(asked, told_) == told_
    assert teller(asked, "My friend waited in the garden.") is None


@pytest.mark.parametrize(
    "asked",
    [
        "When does my job begin?",
        "What is my sister's job?",
        "Where did I go after my wedding?",
        "Who am I meeting?",
    ],
)
def test_what_only_sounds_like_these_is_another_question(asked: str) -> None:
    assert asked_for(asked) == ""


SAID = ("My name is Sven.", "I work as a nurse.", "I live in Oslo.", "We booked a trip to Madrid.")


@pytest.mark.parametrize(
    "asked",
    [
        "Where should I go for dinner?",
        "Where does this road go?",
        "How do I cancel my flight?",
        "What should I pack for my trip?",
        "Where do I go to renew my passport?",
        "Who are you talking about?",
        "What name do you like best for a cat?",
        "Can you help me with my work?",
        "Is nursing a good career for me?",
        "How do actors make a living?",
    ],
)
def test_advice_is_told_none_of_the_four(asked: str) -> None:
    what = wanted(asked)
    assert what is None or teller(asked, *SAID) is None


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("When is my flight?", "My flight is at nine."),
        ("How much did I pay for my ticket?", "I paid 300 euros for my ticket."),
        ("Who comes with me on my trip?", "Anna comes with me on my trip."),
        ("What do I love about my job?", "I love my job because of the people."),
        ("Who am I?", "My name is Sven."),
        ("What is my home town?", "I live in Oslo."),
        ("How do I earn my living?", "I work as a nurse."),
    ],
)
def test_another_thing_of_them_and_other_people_are_not_taken_for_them(asked: str, answer: str) -> None:
    others = ("My boss called me at five.", "I moved my meeting to Monday.", "My train was late as never.")
    assert teller(asked, *SAID[:3], answer, *others, "My brother works as a lawyer.", SAID[3]) == answer
