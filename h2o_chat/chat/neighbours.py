"""Words that tell what another word asks for: "dog" tells a pet, "I teach" a job; no model.

Two tables. Those below were written by hand: how people ask for what one tells of oneself, and how they tell
it. `kinds.txt` was made from WordNet (`tools/make_kinds.py`): which words name an animal, a fruit, a trade.
Word vectors were tried and found too much that was not meant (docs/LOG.md).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from h2o_chat.chat.finding import BEGINNING, WORD
from h2o_chat.chat.personal import MY, I

KINDS = Path(__file__).with_name("kinds.txt")

_SAME = """
buy bought · study studied · spend spent · leave left · meet met · lend lent · choose chose · teach taught
drive drove car · write wrote · eat ate · drink drank · wear wore · sell sold · grow grew · lose lost
win won · find found · keep kept · build built · send sent · see saw · watch saw watched · fly flew
get got · pay paid spent cost · age years born · birthday born · job work works working · occupation job
profession job · career job · live moved address home · address live · married wife husband · wife married
husband married · children kids son daughter twins · kids children son daughter twins · phone mobile
mobile phone · mother mum mom mummy · father dad daddy papa · wedding married marry · mum mother mom
dad father · sofa couch settee · couch sofa settee · luggage suitcase bag backpack rucksack
suitcase bag luggage · bag suitcase rucksack backpack · bike bicycle · bicycle bike · motorcycle motorbike
motorbike motorcycle · boat yacht ship · ship boat · puppy dog · kitten cat · kitty cat · dog puppy
grandmother grandma gran granny nan · grandfather grandpa granddad · aunt auntie · son boy kid child
daughter girl kid child · siblings brother sister · parents mother father mum dad
spouse wife husband married · partner wife husband married girlfriend boyfriend · girlfriend dating
boyfriend dating · friend buddy pal mate · buddy friend mate pal · pal friend · mate friend
boss supervisor manager chief · supervisor boss manager · manager boss supervisor · colleague coworker
coworker colleague · landlord landlady rent · landlady landlord rent · roommate flatmate share
flatmate roommate share · doctor gp physician dr · gp doctor dr · physician doctor
lawyer attorney solicitor · attorney lawyer solicitor · flat apartment · apartment flat · purse wallet
wallet purse · glasses spectacles · spectacles glasses · umbrella brolly · brolly umbrella · jacket coat
coat jacket · television tv telly · headphones earphones headset earbuds · earphones headphones headset
film movie · movie film · exam test · test exam · novel book · laptop notebook · notebook laptop
computer laptop pc · cash money · money cash · key keyring · keyring key · vehicle car truck van
celebration party · party celebration · vacation holiday · holiday vacation · beverage drink
dessert cake pudding · trip travel journey · plane flight · flight plane · university college
college university · purchase bought · shop store · begin start · start begin · finish end
haircut barber hairdresser · surgery operation · operation surgery · bill invoice · neighbour neighbor
neighbor neighbour · soccer football · closest best · wake get · present gift · gift present · pin code
code pin password combination · combination code · password passphrase passcode code login · email mail
hate detest loathe dislike · dislike hate detest loathe · injure hurt broke · break broke broken fractured
hurt injured · forget forgot left
"""
SAME = {
    word: others
    for line in _SAME.strip().splitlines()
    for word, *others in (group.split() for group in line.split("·"))
}
"""Words that tell the same as another, and begin otherwise."""

_TOLD_BY = """
job profession occupation career trade living work: work teach repair sell retired am~worker as~worker
business: run own
boss supervisor manager: report
employer company firm: work works employed
employed: work works
workplace office: office work desk
live: moved home house flat apartment
address street road: house flat address lane avenue
home house: live
city town: live moved from~city live~city
hometown: born grew raised from~city
grow raised brought: born childhood grew raised
country homeland: from~country live~country born~country
nationality citizenship: passport citizen from~country am~nationality
origin roots: from~country am~nationality come born
born: from~city from~country
birth: born birthday due
birthday: born
fiancée fiancé: engaged
age: years born turned~NUMBER am~NUMBER
surname: surname
husband wife spouse partner: married wedding
married: husband wife spouse wedding divorced single
marital relationship: married single divorced widowed engaged husband wife
wedding: marry married
baby babies birth: twins pregnant expecting due
relative relatives family: have~relative
friend: best closest
pet pets animal animals: have~animal
breed: have~dog have~cat
bird: have~bird
car vehicle: drive have~car
vehicle: drive ride have~vehicle
scooter: ride vespa
motorcycle motorbike: ride honda yamaha
bike bicycle: ride cycle
commute: bus train tram bike bicycle car ride drive walk
camera: nikon canon leica kodak pentax olympus fuji fujifilm
computer laptop notebook: mac macbook thinkpad dell lenovo
phone telephone mobile cell cellphone: call reach smartphone iphone samsung nokia
email mail: write reach
heavy: weighs weigh
weight: weigh weighs scales kilos kilo pounds
height: tall feet metres meters metre centimetres cm
jewellery jewelry: have~jewellery ring
salary income wage pay: earn make paid month
earn: make salary income
rent: landlord
debt: owe loan borrowed mortgage
insurer insurance: insured
price cost: cost paid
drink beverage: drink~drink order~drink like~drink
coffee: drink~coffee order~coffee like~coffee
tea: drink oolong darjeeling chai
food dish meal: like~food like~dish eat~food eat~dish
fruit berry: like~fruit eat~fruit
vegetable vegetables veg: like~vegetable eat~vegetable grow~vegetable
sweet dessert candy: like~sweet eat~sweet chocolate cake liquorice
nut nuts: like~nut
cheese: like~cheese
meat: like~meat
eat: eat~food
breakfast: eat~food eat~dish morning
lunch dinner supper: eat~food eat~dish
diet: vegetarian vegan never~meat never~animal never~food
vegetarian vegan: vegetarian vegan never~meat never~animal
allergic intolerant allergy allergies: rash swell sneeze bear~food bear~nut bear~animal bear~drink
favourite favorite prefer love like enjoy: love like adore enjoy best crazy favourite favorite most fond
favourite favorite prefer love like enjoy: mad fan prefer eat order always nothing support root everyday
dislike hate: hate dislike stand loathe awful detest
taste: listen
music: like~music play~music listen
band singer group: listen group play
composer: like~musician listen like~FAMOUS
author writer: read
book novel: read reading
film movie: cinema watched
instrument: play~instrument
language tongue: speak~tongue speaking learn~tongue
speak: language
learning studying learn study: lessons classes class course taking
sport exercise: play~sport play~EXERCISE go~EXERCISE
team club: support fan root
practise practice: play train play~sport play~EXERCISE go~EXERCISE
hobby pastime interest: build make collect paint painting enjoy free spare knitting like~pastime
hobby pastime interest: play~pastime
religion faith belief: am~believer am~RELIGION have~religion
party: vote voted
political politics: vote voted
zodiac: am~ZODIAC
season: like~season
savings: put hid money cash
injury: broke fractured sprained twisted hurt
condition: diagnosed pressure
bank: account customer
storey floor: live
hearing: court trial
line: work sell
wish: dream
mortgage: mortgage
move: moving
registration: plate
month: ~month
favourite_colour: like~COLOUR
colour color: am~COLOUR like~COLOUR
hair: am~HAIR
eyes: ~COLOUR
feet shoes shoe: wear size
holiday holidays vacation trip travel travelling journey destination: flew go~country go~city going~city
going: fly~city fly~country flying
hotel: staying
stay staying: hotel hostel
appointment: see seeing
medical: doctor hospital
dentist: tooth teeth
haircut: barber hairdresser
celebrate: birthday party
injure hurt: broke fractured sprained twisted
bone: broke fractured broken
illness disease sickness condition ailment: suffer have~illness
suffer: have~illness
medicine medication pills drug tablets: take~drug insulin
university college: studied study degree
subject: studied study learn~science am~science
graduate: finished degree diploma
degree: studied graduated
teacher teaches teach: teaches taught tutor
sleep: bed asleep
bed: sleep
wake: alarm rise
afraid scared fear phobia: afraid scared fear terrified frightened scare scares
ambition: become
garden: grow growing planting planted
flower flowers: grow~flower grow~plant
television tv: sony samsung philips panasonic toshiba lg
vacation: spent
shift: start work
grow plant: garden grow~vegetable grow~flower
inherit: left
give gave gift present: got from
lose leave forget: mislaid lost left forgot
keep: put hang hid stored
store stored: put keep hid locker
lend borrow: lent borrowed
meet seeing meeting: met meet seeing
stop quit: retire
hours shift: shift nights
"""
"""What is asked for: what tells it, where a person says it of herself. `~animal` is any word of that kind, of
kinds.txt or of _WORDS; before the sign stands how it is said (_HOW)."""

_HOW = {
    "": "",
    "am": "am as became become is are",
    "as": "as",
    "have": "have has had got own my our keep bought adopted with suffer drive ride wear",
    "live": "live lived moved living home house",
    "from": "from in",
    "born": "born",
    "like": "love like adore enjoy best crazy favourite favorite most fond mad fan prefer"
    " hate dislike stand loathe"
    " always eat drink order nothing could",
    "eat": "eat ate had have breakfast lunch dinner",
    "drink": "drink drank had have",
    "order": "order ordered",
    "grow": "grow growing plant planted planting",
    "bear": "cannot",
    "never": "never",
    "play": "play playing plays do did practise go love like enjoy",
    "speak": "speak speaking spoke speaks",
    "learn": "learn learning study studying studied taking take taught teach",
    "take": "take took taking",
    "go": "went go going off visited spent trip flew fly flying",
    "going": "going off fly flying travel travelling leaving",
    "fly": "fly flying off going",
    "turned": "turned turn turning am",
}
_WORDS = {
    "NUMBER": "twenty thirty forty fifty sixty seventy eighty ninety",
    "FAMOUS": "bach mozart beethoven chopin schubert brahms verdi wagner vivaldi handel haydn"
    " tchaikovsky grieg debussy",
    "EXERCISE": "yoga running jogging pilates weights swimming cycling dancing gym judo karate",
    "RELIGION": "christian jewish jew buddhist atheist muslim catholic protestant hindu sikh mormon"
    " orthodox agnostic",
    "ZODIAC": "aries taurus gemini cancer leo virgo libra scorpio sagittarius capricorn aquarius pisces",
    "COLOUR": "red blue green yellow black white brown grey gray purple pink orange silver golden"
    " turquoise beige violet",
    "HAIR": "blond blonde brunette ginger redhead bald",
}
NEAR = 5
FAR = 6
"""Words between one for oneself, and what one tells; and where it stands how it is told."""
_ONLY = frozenset(
    [
        "thinking",
        "think",
        "rather",
        "than",
        "if",
        "wish",
        "know",
        "looking",
        "need",
        "hope",
        "hoping",
        "wonder",
        "wondering",
        "wondered",
        "sure",
    ]
)
_SHORT = (
    ("’", "'"),
    ("i'm ", "i am "),
    ("'re ", " are "),
    ("'ve ", " have "),
    ("can't ", "cannot "),
    ("don't ", "never "),
    ("never know", "know"),
    ("feel like", "feel"),
    ("'d like", " want"),
    ("would like", "want"),
    (" to work", " commute"),
)
_SPOKEN = re.compile(rf"[.!?;]+(?=\s|$)|{WORD.pattern}")


_STOPS = ".!?;"
_SELF = I | MY
_HOWS = {how: frozenset(words.split()) for how, words in _HOW.items()}
LIKES = _HOWS["like"]


@dataclass(frozen=True)
class Neighbours:
    """What tells a word."""

    words: frozenset[str]
    kinds: tuple[tuple[frozenset[str], frozenset[str]], ...]
    """(how it is said: one of these stands before it, or nothing need; the words of the kind)."""
    beginnings: frozenset[str]
    """Of all these and their plurals, as far as they are compared."""

    def told_by_self(self, said: Sequence[str]) -> bool:
        """Whether one of them stands there, and right before it a word for oneself.

        Args:
            said: as `spoken` makes it.
        """
        for at, word in enumerate(said):
            if word[:BEGINNING] not in self.beginnings:
                continue
            if word in self.words and of_self(before(said, at, NEAR)):
                return True
            for how, members in self.kinds:
                if members.isdisjoint(singular(word)):
                    continue
                if how is LIKES:
                    around = sentence(said, at)
                    if not LIKES.isdisjoint(around) and not _SELF.isdisjoint(around):
                        return True
                elif (not how or not how.isdisjoint(before(said, at, NEAR))) and of_self(
                    before(said, at, FAR)
                ):
                    return True
        return False


def plain(text: str) -> str:
    """In small letters, with "I'm" as two words, and without "feel like", which likes nothing."""
    text = text.casefold()
    for short, long in _SHORT:
        text = text.replace(short, long)
    return text


def spoken(text: str) -> list[str]:
    """The words, with a dot between sentences."""
    return _SPOKEN.findall(text)


def before(said: Sequence[str], at: int, near: int) -> Sequence[str]:
    """So many words right before one, of its sentence; none where somebody only thinks of it."""
    found = list(takewhile(lambda one: one[0] not in _STOPS, reversed(said[max(0, at - near) : at])))
    return [] if not _ONLY.isdisjoint(found) else found


def sentence(said: Sequence[str], at: int) -> Sequence[str]:
    """The words of its sentence; none where somebody only thinks of it."""
    after = list(takewhile(lambda one: one[0] not in _STOPS, said[at:]))
    before = list(takewhile(lambda one: one[0] not in _STOPS, reversed(said[:at])))
    return [] if not _ONLY.isdisjoint([*before, *after]) else [*before, *after]


def of_self(words: Sequence[str]) -> bool:
    """Whether one of them is for oneself."""
    return any((word in I and word != "me") or word in MY for word in words)


@cache
def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for line in _TOLD_BY.strip().splitlines():
        asked, _, told = line.partition(": ")
        for word in asked.split():
            table[word] = f"{table.get(word, '')} {told}".strip()
    return table


@cache
def _kinds() -> dict[str, frozenset[str]]:
    lines = (line.partition(": ") for line in KINDS.read_text("utf-8").splitlines())
    named = {kind: frozenset([kind, *words.split()]) for kind, _, words in lines}
    return named | {kind: frozenset(words.split()) for kind, words in _WORDS.items()}


@cache
def neighbours(word: str) -> Neighbours:
    """What tells it, beside the word itself."""
    table = _table()
    parts = next((table[one] for one in singular(word) if one in table), "").split()
    words = frozenset(one for one in parts if "~" not in one)
    told = [one.partition("~") for one in parts if "~" in one]
    kinds = tuple((_HOWS[how], _kinds()[kind]) for how, _, kind in told)
    every = words.union(*(members for _, members in kinds))
    beginnings = {(one + ending)[:BEGINNING] for one in every for ending in ("", "s", "es")}
    return Neighbours(words, kinds, frozenset(beginnings))


def singular(word: str) -> tuple[str, ...]:
    """The word, and what it may be the plural of: mangoes, mango."""
    forms = [word]
    if word.endswith("s") and len(word) > 3:
        forms.append(word[:-1])
        if word.endswith("es"):
            forms.append(word[:-2])
        if word.endswith("ies"):
            forms.append(word[:-3] + "y")
    return tuple(forms)
