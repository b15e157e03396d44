"""Values of planted facts, from spaces too large to learn by heart.

Recall of unseen values begins only when training values are open (algorithm.md, section 9), so
names and towns are mostly random syllables and codes are random letters and digits.
"""

import random
import zlib
from collections.abc import Callable


def _words(text: str, separator: str | None = None) -> list[str]:
    return text.split(separator)


_ONSETS = _words("b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w y z") + [""] * 3
_VOWELS = _words("a e i o u a e i o ai ea ee ia io ou y")
_CODAS = ["", "", "", "", *_words("n r l s m th ck nd x t")]

_FIRST_NAMES = _words(
    "Ada Alan Alice Amir Anna Ben Bella Boris Carla Carlos Cora Dana David Diego Edith Ella Emil"
    " Emma Erik Eva Fatima Felix Finn Flora Frank Grace Greta Hana Harry Hugo Ida Igor Ines Iris"
    " Ivan Jack Jana Joan John Jonas Judy Julia Karl Kate Kenji Lara Laura Lena Leo Lily Linda"
    " Lucas Luis Maria Mark Marta Mary Max Maya Mia Mila Nina Noah Nora Olga Oscar Otto Paul Pedro"
    " Peter Petra Rosa Ruth Ryan Sam Sara Sofia Sven Tara Tom Uma Vera Victor Wanda Will Yara Zoe"
    " Bob Tim Sue Amy Joe Dan Jim Kim Lee Ann Eve Ian Roy Ray Max Rex Kai Mimi Luna Bruno Rocky"
)
_TOWNS = _words(
    "Paris London Berlin Madrid Rome Vienna Lisbon Dublin Oslo Prague Warsaw Athens Cairo Delhi"
    " Tokyo Lima Quito Boston Denver Chicago Seattle Austin Portland Dallas Toronto Sydney Bern"
    " Geneva Munich Hamburg Milan Naples Porto Seville Krakow Riga Leeds York Bath Nice Lyon"
)
_NOUNS = _words(
    "apple bread river candle ladder pepper garden window basket lemon violin carpet pillow rocket"
    " turtle marble button feather mountain bottle hammer kettle lantern blanket cherry pumpkin"
    " spider dragon castle bridge island forest thunder shadow silver copper ribbon pencil paper"
    " mirror anchor barrel cactus dolphin eagle falcon ginger honey ivory jacket kitten lizard"
    " monkey needle onion parrot quilt rabbit saddle tiger umbrella velvet walnut yogurt zebra"
    " chess soup pasta cheese coffee tea juice tennis hockey sailing chess painting singing rose"
    " tulip daisy oak maple pine birch rice beans salad pizza noodles curry cake pie melon plum"
    " banana orange grape cocoa milk water soccer golf judo rugby cycling hiking rowing knitting"
    " history music math biology lion bear wolf fox owl crow swan horse camel whale shark crab"
    " drum flute piano harp guitar puzzle robot kite ball doll train boat cart sled bell clock"
)
_COLOURS = _words(
    "red blue green yellow orange purple pink brown black white grey silver golden violet"
    " turquoise beige crimson maroon olive teal navy ivory amber indigo scarlet lilac copper mint"
)
_SHADES = ["", "", "", "dark ", "light ", "bright ", "pale ", "deep ", "dull ", "shiny "]
_DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_MONTHS = _words("January February March April May June July August September October November December")
_SPOTS = _words(
    "in the {} drawer|under the {} bed|behind the {} curtain|on the {} shelf|in the {} box|inside"
    " the {} cupboard|below the {} table|next to the {} lamp|in the {} bag|on the {} chair|under"
    " the {} carpet|behind the {} clock|in the {} basket|on the {} piano|in the {} jar|inside the"
    " {} boot|beside the {} stove|under the {} pillow",
    "|",
)
_SPOT_WORDS = (
    _words("big small old new round wooden broken left right upper lower narrow wide dusty heavy empty")
    + _COLOURS
)
_JOBS = _words(
    "baker nurse teacher pilot farmer painter plumber lawyer singer driver cook tailor doctor"
    " gardener carpenter dentist fisher waiter clerk judge librarian mechanic butcher barber"
    " sailor miner potter writer actor dancer florist jeweller welder roofer surgeon chemist"
    " banker broker cleaner guard porter guide translator editor engineer builder brewer weaver"
)
_JOB_WORDS = ["", "", "", "night ", "ship ", "school ", "village ", "hotel ", "factory ", "court "]
_RULES = _words(
    "end every answer with the word {}|never mention {}|always speak about {} first|call me {}|"
    "start each reply with {}|write about {} only|use the word {} often|never say the word {}|"
    "talk like a {}|think of {} before you answer|avoid the word {}|compare everything with {}",
    "|",
)


def is_held_out(value: str) -> bool:
    """One value in eight belongs to the test questions, by a hash that never changes."""
    return zlib.crc32(value.lower().encode()) % 8 == 0


def _syllables(rng: random.Random, low: int, high: int) -> str:
    parts = (
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.randint(low, high))
    )
    return "".join(parts).capitalize()


def _name(rng: random.Random) -> str:
    return rng.choice(_FIRST_NAMES) if rng.random() < 0.3 else _syllables(rng, 1, 3)


def _town(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.2:
        return rng.choice(_TOWNS)
    stem = _syllables(rng, 1, 2)
    if draw < 0.6:
        return stem + rng.choice(_words("ton ville burg field ford dale port wick ham stad"))
    prefix = rng.choice(["", "", "", "New ", "Port ", "San ", "Lake ", "Upper "])
    return prefix + _syllables(rng, 2, 3)


def _noun(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.5:
        return rng.choice(_NOUNS)
    if draw < 0.75:
        return f"{rng.choice(_COLOURS + _SPOT_WORDS)} {rng.choice(_NOUNS)}"
    return _syllables(rng, 2, 3).lower()


def _code(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.15:
        return f"{rng.choice(_NOUNS)} {rng.choice(_NOUNS)}"
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    alphabet = "0123456789" if draw < 0.3 else letters if draw < 0.4 else letters + "0123456789"
    code = "".join(rng.choices(alphabet, k=rng.randint(3, 7)))
    return f"{code[:2]}-{code[2:]}" if draw > 0.9 else code


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(1, 12), rng.choice(_words("00 00 15 30 45 10 20 40 50"))
    if minute == "00":
        ending = rng.choice(["am", "pm", "o'clock"])
        return f"{hour} {ending}"
    return f"{hour}:{minute}{rng.choice(['', '', ' am', ' pm'])}"


def _daytime(rng: random.Random) -> str:
    return f"{rng.choice(_DAYS)} at {_time(rng)}"


def _date(rng: random.Random) -> str:
    month, day = rng.choice(_MONTHS), rng.randint(1, 28)
    return f"{month} {day}" if rng.random() < 0.6 else f"the {day}th of {month}"


def _instruction(rng: random.Random) -> str:
    noun = rng.choice(_NOUNS) if rng.random() < 0.6 else _syllables(rng, 1, 2).capitalize()
    return rng.choice(_RULES).format(noun)


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "name": _name,
    "town": _town,
    "noun": _noun,
    "colour": lambda rng: rng.choice(_SHADES) + rng.choice(_COLOURS),
    "daytime": _daytime,
    "date": _date,
    "code": _code,
    "number": lambda rng: str(rng.randint(2, 9999 if rng.random() < 0.4 else 199)),
    "place": lambda rng: rng.choice(_SPOTS).format(rng.choice(_SPOT_WORDS)),
    "job": lambda rng: rng.choice(_JOB_WORDS) + rng.choice(_JOBS),
    "instruction": _instruction,
    "word": lambda rng: rng.choice(_NOUNS) if rng.random() < 0.7 else _syllables(rng, 1, 2).lower(),
}


def draw_value(rng: random.Random, space: str, held_out: bool) -> str:
    """Draws a value of a space ("name", "code" ...) from the training or the test half."""
    while True:
        value = _MAKERS[space](rng)
        if is_held_out(value) == held_out:
            return value
