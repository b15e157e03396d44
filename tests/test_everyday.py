"""What `pocket` is trained on, and what it is asked in its test: lines that somebody wrote by hand."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / "tools" / "train"


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def lines(name: str) -> list[dict[str, Any]]:
    text = (TOOLS / "pocket" / f"{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["everyday", "held_out_everyday"])
def test_every_line_tells_asks_and_answers_each_value(name: str) -> None:
    for line in lines(name):
        letters = set(line["values"])
        assert letters == set(line["ask"]) == set(line["answer"])
        for told in line["tell"]:
            assert sorted(re.findall(r"\{(\w)\}", told)) == sorted(letters), told
        for letter in letters:
            assert re.findall(r"\{(\w)\}", line["answer"][letter]) == [letter]
            assert len(set(line["values"][letter])) == len(line["values"][letter]) > 1
        assert not any("{" in asked for row in [*line["ask"].values(), line["untold"]] for asked in row)


def test_no_sentence_of_the_tests_is_trained_on() -> None:
    from pocket.phrases import PhraseBook, wording

    trained = lines("everyday")
    told = {wording(text) for line in trained for text in line["tell"]}
    asked = {wording(text) for line in trained for row in line["ask"].values() for text in row}
    held = lines("held_out_everyday")
    for line in held:
        assert not told & {wording(text) for text in line["tell"]}
        assert not asked & {wording(text) for row in line["ask"].values() for text in row}
    blank = re.compile(r"\{\w\}")
    book = PhraseBook(held_out=True)
    phrases = [wording(blank.sub("{v}", one)) for one in told | asked]
    for reserved in book.reserved:
        thing = re.compile(re.escape(reserved).replace(r"\{x\}", r"\w+( \w+)?"))
        assert not any(thing.fullmatch(one) for one in phrases), reserved


def test_a_fact_is_told_and_answered_with_the_same_values() -> None:
    from pocket.everyday import draw_everyday

    rng = random.Random(1)
    for _ in range(200):
        fact = draw_everyday(rng)
        told = fact.tell(rng).lower().replace("'", "")
        for letter, value in fact.values.items():
            assert value in fact.answer(letter)
            assert value.lower().replace("'", "").rstrip(".") in told
        letter = rng.choice(list(fact.values))
        assert fact.changed(rng, letter).values.keys() == fact.values.keys()
