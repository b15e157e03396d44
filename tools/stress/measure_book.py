"""Questions on two books pasted as one message: is the passage recalled, and does a model answer rightly?

    tools/stress/measure_book.py FOLDER [--questions 40:80] [--budget 2048] [--words 9000] [--tokenizer MODEL]
    tools/stress/measure_book.py FOLDER -m MODEL         # an hour and more: the model reads 100,000 tokens

FOLDER has carroll-alice.txt and wizard-of-oz.txt. `book_questions.txt`: a question, its answer, the book and
where its passage stands there; two people, who did not know the rule, wrote forty each. The rule of pages was
chosen on the first forty. A passage is recalled if half of its runs of three words are. With --words each is
asked of so many words of its book. Without a model nothing is held, and a token has four characters.
"""

import argparse
import json
from pathlib import Path

from measure_recall import Nothing, rarity_by

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Message, Recalled, fed_text
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Note, Turn
from h2o_chat.lab.eval.qa import normalised
from h2o_chat.lab.eval.synthetic_talk import holds
from h2o_chat.native.native_model import open_model

BOOKS = ("carroll-alice.txt", "wizard-of-oz.txt")
QUESTIONS = Path(__file__).with_name("book_questions.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-m", "--model")
    parser.add_argument("--questions", default="40:80")
    parser.add_argument("--budget", type=int, default=2048)
    parser.add_argument("--words", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokenizer", metavar="MODEL", help="tells how rare words are; else pocket's")
    asked = parser.parse_args()
    books = {name: (asked.folder / name).read_text("utf-8") for name in BOOKS}
    lines = QUESTIONS.read_text("utf-8").splitlines()[slice(*map(int, asked.questions.split(":")))]
    flat = {name: " ".join(text.split()) for name, text in books.items()}
    split = [line.split(" | ") for line in lines]
    rows = [(one, two, flat[book][slice(*map(int, at.split(":")))]) for one, two, book, at in split]
    both, found, rarity = "\n\n".join(books.values()), 0, rarity_by(asked.tokenizer)
    for number, (question, _, passage) in enumerate(rows):
        text = both
        if asked.words:  # the passage stands somewhere else in each
            book = next(one for one in flat.values() if passage in one)
            start = max(0, book.index(passage) - 6 * asked.words * number // len(rows))
            text = book[start : start + 6 * asked.words]
        said = [Message("user", text, 0, len(text) // 4)]
        recall = Recall(lambda one: len(one) // 4, rarity=rarity)
        again, *_ = recall.for_message(question, said, Nothing(), Settings(), asked.budget)
        wanted = runs(passage)
        found += 2 * len(wanted & runs(" ".join(one.words for one in again))) >= len(wanted)
    print(f"{found} of {len(rows)} passages are recalled")
    if asked.model:
        settings = Settings(model=asked.model, budget=asked.budget, threads=asked.threads)
        print(json.dumps(answered(rows, both, settings)))


def runs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(words, words[1:], words[2:], strict=False))


def answered(rows: list[tuple[str, str, str]], both: str, settings: Settings) -> dict[str, object]:
    """Right answers behind the books, and, in conversations of their own, behind the passage alone.

    Also the right answers below which a note quotes the closest piece, and those where it is of the passage.
    """
    with progress_bar() as progress:
        chat = Chat(Engine(open_model(settings, progress), settings), settings)

    notes: list[Note] = []

    def reply(text: str) -> str:
        sent = list(chat.send(text, Sampling(max_tokens=40)))
        notes[:] = [event for event in sent if isinstance(event, Note) and event.code == "closest"]
        return normalised(next(event.text for event in sent if isinstance(event, Turn)))

    reply(both)
    right, quoted, replies = 0, [], []
    for question, answer, passage in rows:
        replies.append(reply(question))
        if holds(replies[-1], normalised(answer)):
            right += 1
            quoted += [bool(runs(passage) & runs(one.message)) for one in notes]
    alone = 0
    for question, answer, passage in rows:
        chat.clear()
        alone += holds(reply(fed_text(question, (Recalled(0, passage, True),))), normalised(answer))
    chat.close()
    found = {"closest_quoted": len(quoted), "of_the_passage": sum(quoted)}
    return {"right": right, "passage_alone": alone, **found, "answers": replies}


if __name__ == "__main__":
    main()
