"""Questions on two books pasted as one message: is the passage recalled, and does a model answer rightly?

    tools/stress/measure_book.py FOLDER [--questions 40:80] [--budget 2048]
    tools/stress/measure_book.py FOLDER -m MODEL         # an hour and more: the model reads 100,000 tokens

FOLDER has carroll-alice.txt and wizard-of-oz.txt. `book_questions.txt`: a question, its answer, the book and
where its passage stands there (with single spaces); two people, who did not know the rule, wrote forty each.
The rule of pages was chosen on the first forty. A passage counts as recalled if half of its runs of three
words are. Without a model nothing is held, and a token has four characters. With one each question is asked
again in a conversation of its own that has the passage alone.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from measure_recall import Nothing

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Message, Recalled, fed_text
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.eval.qa import normalised
from h2o_chat.lab.eval.synthetic_talk import holds
from h2o_chat.models.load import load

BOOKS = ("carroll-alice.txt", "wizard-of-oz.txt")
QUESTIONS = Path(__file__).with_name("book_questions.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-m", "--model")
    parser.add_argument("--questions", default="40:80")
    parser.add_argument("--budget", type=int, default=2048)
    asked = parser.parse_args()
    whole = {name: (asked.folder / name).read_text("utf-8") for name in BOOKS}
    lines = QUESTIONS.read_text("utf-8").splitlines()[slice(*map(int, asked.questions.split(":")))]
    rows = list(cut(lines, {name: " ".join(text.split()) for name, text in whole.items()}))
    book = "\n\n".join(whole.values())
    print(f"{recalled(rows, book, asked.budget)} of {len(rows)} passages are recalled")
    if asked.model:
        print(json.dumps(answered(rows, book, asked)))


def cut(lines: list[str], books: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """(question, answer, passage) of each line."""
    for line in lines:
        question, answer, book, place = line.split(" | ")
        yield question, answer, books[book][slice(*map(int, place.split(":")))]


def recalled(rows: list[tuple[str, str, str]], book: str, budget: int) -> int:
    """How many passages are among what is recalled."""
    recall = Recall([], lambda text: len(text) // 4)
    said = [Message("user", book, 0, len(book) // 4)]
    found = 0
    for question, _, passage in rows:
        again, _ = recall.for_message(question, said, Nothing(), Settings(), budget)
        found += among(passage, again)
    return found


def among(passage: str, again: tuple[Recalled, ...]) -> bool:
    wanted = runs(passage)
    return 2 * len(wanted & runs(" ".join(one.words for one in again))) >= len(wanted)


def runs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(words, words[1:], words[2:], strict=False))


def answered(rows: list[tuple[str, str, str]], book: str, asked: argparse.Namespace) -> dict[str, object]:
    """Right answers behind the book, and behind the passage alone."""
    settings = Settings(model=asked.model, budget=asked.budget)
    with progress_bar() as progress:
        chat = Chat(Engine(load(settings, progress), settings), settings)
    say(chat, book)
    replies = [say(chat, question) for question, _, _ in rows]
    right = [is_right(reply, answer) for reply, (_, answer, _) in zip(replies, rows, strict=True)]
    alone = 0
    for question, answer, passage in rows:
        chat.clear()
        alone += is_right(say(chat, fed_text(question, (Recalled(0, passage, True),))), answer)
    chat.close()
    return {"right": sum(right), "passage_alone": alone, "answers": replies}


def is_right(reply: str, answer: str) -> bool:
    return holds(normalised(reply), normalised(answer))


def say(chat: Chat, text: str) -> str:
    sent = chat.send(text, Sampling(max_tokens=40))
    return next(event.text for event in sent if isinstance(event, Turn))


if __name__ == "__main__":
    main()
