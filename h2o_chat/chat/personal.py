"""Whether a question asks for something that only the person can have told, and by which words; no model.

"What is my dog called?" does. "What is my best option?", "How do I fix my car?" and "What did you do to my
house?" speak of oneself too, but ask for advice, or for what somebody else knows. Of English that was learned
from examples (`learned.py`); of other languages the words for what is one's own, and those that ask, are
known. Whether it was told: `told.py`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from h2o_chat.chat.everyday import asked_for
from h2o_chat.chat.finding import WORD
from h2o_chat.chat.learned import personal


def word_set(text: str) -> frozenset[str]:
    """The words of a text, in small letters; a dot stands between languages."""
    return frozenset(text.replace("·", " ").casefold().split())


MY = word_set("""
my our mine ours · mein meine meinen meinem meiner meines unser unsere unseren unserem unserer · mon ma mes
notre nos · mi mis nuestro nuestra nuestros nuestras · mio mia miei mie nostro nostra · meu minha meus minhas
nosso nossa · mijn onze · min mitt mina vår vårt · мой моя мое моё мои мою моем моего моей
наш наша
""")
"""Words for what is one's own."""
I = word_set("""
i me myself we us · ich mich mir wir · je j me moi · yo me · io · eu · ik · jag mig · я меня мне мной мы нас
我 私 僕 俺
""")  # noqa: E741
"""Words for oneself."""
_ASKS_IN_ENGLISH = word_set("what who whom whose where when which whats whos wheres whens")
_ASKS_ELSEWHERE = word_set("""
was wer wen wem wessen wo wann welche welcher welches welchen welchem
wohin woher · quel quelle quels quelles qui où quand combien que · qué cuál cuáles quién dónde cuándo cuántos
cuántas · che quale quali chi dove quando quanti quante · quem onde quantos quantas · wat waar wanneer welke
wie · vad vem var när vilken vilket
что кто кого где когда какой какая какое какие какого какую сколько чей
什 谁 誰 哪 几 多 何
""")
"""Words that ask, in other languages than English."""
LIKELY = 0.0
"""Log-odds from which on a question is taken for one: it is more likely than not."""
PERHAPS = -4.0
"""The same of one that sounds like a question for one's job, home or trip (`everyday.py`)."""
_FOR_ADVICE = word_set(
    "should ought must need better best good worth help recommend suggest write explain why pack"
)
_REMEMBER = re.compile(
    r"\b(?:(?:do|can|could|would|will) you (?:still |please |also )?(?:happen to )?"
    r"(?:remember|recall|know|tell me|remind me)(?: again| of)?"
    r"|(?:did|have|had|haven|didn) i (?:ever |already |not |just )?"
    r"(?:tell|told|mention|mentioned|say|said|give|given)(?: you)?(?: about)?"
    r"|what (?:did|have) i (?:tell|told|say|said)(?: to)?(?: you)?(?: about)?|remind me|tell me|you know"
    r"|weisst du(?: noch)?|erinnerst du dich(?: noch)?(?: an)?|kannst du mir (?:noch )?sagen"
    r"|habe? ich dir (?:schon )?(?:gesagt|erzählt)|tu te souviens(?: de)?|te souviens tu(?: de)?"
    r"|tu sais|sais tu|te acuerdas(?: de)?|recuerdas|sabes|ti ricordi|sai|(?:você )?se lembra(?: de)?"
    r"|weet je(?: nog)?|(?:ты )?помнишь|你 (?:还 )?(?:记 得|知 道))(?= |$)"
)
"""Asks whether the other one knows what follows, or was told it."""
_TOLD_YOU = re.compile(r"\bi (?:\w+ )?(?:told|gave|mentioned|said|sent|showed)(?: it)?(?: to)? you\b")
_HOW = re.compile(
    r"\b(?:wie (?:alt|viele?|gross|lange?|oft|weit|schwer|hoch|spät|heiss\w*|hiess\w*|ist|war|lautet)"
    r"|comment s|cómo (?:se|me) llam\w+|come si chiam\w+|como se cham\w+"
    r"|hoe (?:oud|heet|veel|lang|groot|vaak)|как (?:\w+ )?зовут)\b"
)
"""How much of something, or its name, in other languages than English. Any other "how" asks for advice."""
_ADVICE = word_set("""
du dir dich dein deine ihr euch sie ihnen · soll sollte sollten kann könnte können muss müsste darf würde
warum wieso weshalb brauche besser beste besten finde · tu toi vous votre dois peux puis pourrais devrais
faut pourquoi besoin meilleur meilleure · tú usted puedo debo debería podría necesito mejor · voi posso devo
dovrei potrei perché bisogno migliore · você vocês seu sua preciso porque melhor · jij je jouw moet zou mag
waarom beste · dig ska bör varför bästa · ты вы тебя тебе вас вам твой можно должен должна нужно стоит могу
почему зачем лучше лучший · 你 您 怎 该 应 君
""") - {"je"}
"""In these languages a question with one of these asks for advice, or for what somebody else did."""
_IN_ENGLISH = word_set("the my you what which who to and did")
"""With one of these it is English: `learned.py` knows better."""
_NAME = re.compile(r"(?<=\w )((?:[A-ZÀ-ÞА-ЯЁ]\w+ )*[A-ZÀ-ÞА-ЯЁ][^\W\d_]+)")
"""Words with a capital letter that begin no sentence."""
_OF_HERS = (
    r"\b(?:my|our)(?: best| old| new| little| big| older| younger| late)? \w+,? {0}\b",
    r"\b(?:my|our) (?:\w+ ){{1,3}}(?:is|was|called|named) {0}\b",
    r"\b{0}(?:,| is| was) (?:my|our)\b",
    r"\b(?:with|and) {0}\b(?=.*\b(?:i|me|we|us)\b)",
    r"\b(?:i|me|we|us)\b.* with {0}\b",
    r"\b{0} and (?:i|me)\b",
)
"""How a person names somebody of her own, {0}."""
_ATTRIBUTES = word_set("""
name names called call named number kind type sort old age many much long often far big time day date year
month colour color brand size title exactly again now first last new
""")
"""What is asked of something: it counts where nothing else is asked for."""
NOTHING = (
    word_set("""
a an the of in on at to for from with by about as and or but not no that this these those there here it its
is are was were be been am do does did done have has had having how s t d ll re ve he she him her his they
them their one ones some any also so well ok okay hey hi oh please just way go going get got say said tell
told give gave put make made doing want wanted take took let know remember still already ever own usually
always normally often currently current end terms amount sorry
you your yours yourself could would will can may might must shall should ought won why if whether
· der die das den dem ein eine ist sind waren habe hast im am an auf von zu und noch
· le la les un une est sont était ai de du des il elle · el los las es era ha del · lo gli è sono era ho di
· o os as é são tenho · het een heb hoe · у в на это
的 是 叫 么 了 吗 在 有 の は が を に で す か ま し た て い
""")
    | MY
    | I
    | _ASKS_IN_ENGLISH
    | _ASKS_ELSEWHERE
)
"""Words that say nothing of what is asked for."""
_PHRASES = [
    (re.compile(rf"\b(?:{phrase})\b"), word)
    for phrase, word in (
        ("mother tongue|(?:native|first) (?:language|tongue)", "language"),
        ("star sign|zodiac sign|sign of the zodiac", "zodiac"),
        ("(?:last|family|second) name", "surname"),
        ("home town", "hometown"),
        ("date of birth", "birthday"),
        ("get to (?:the )?(?:office|work)", "commute"),
        ("(?:free|spare) time", "hobby"),
        ("lives next door", "is neighbour"),
        ("(?:which|what) country", "which homeland"),
        ("get up", "wake"),
        ("dream job", "ambition"),
        ("giving birth", "birth"),
        ("how tall", "how much height"),
        ("(?:(?<=where )|(?<=when ))will(?= (?:my|our|i))|(?<=how long )will(?= i)", "is"),
        ("happened to(?= (?:me|my))|makes(?= me)", "had"),
        ("where am i from", "where is my homeland"),
        ("what do i do for a living", "what is my job"),
        (
            "i (?:(?:have |e )?(?:forgot(?:ten)?|wonder)|(?:am |was )?(?:wondering|asking)(?: you)?"
            "|(?:would |d )?(?:want|need|like|wish) to (?:know|hear)"
            "|(?:can|cant|cannot|can not|don|dont|do not|no longer) (?:remember|recall))"
            "|let me know|guess what",
            "tell me what",
        ),
    )
]
"""What says in several words what one word says."""
_LIKES = word_set("favourite favorite prefer love like enjoy dislike hate")
"""What one thinks of something."""
_OWNER = re.compile(r"\b(?:my|our) (?:\w+ ){0,2}?(\w+)['’]s? ")
"""In "my boss's name" it is the boss who is mine."""
_HALF = re.compile(
    r"\b(?:(?:do|did|have|had|am|was) i|to) (\w+)"
    r"|\b(?:what|which|how many) (\w+)(?= (?:is|are|was|were|do|does|did)\b)"
)


@dataclass(frozen=True)
class Wanted:
    """What a question asks for."""

    words: frozenset[str]
    half: frozenset[str]
    """They count half: what somebody does, and what kind of thing it is, "which LANGUAGE do I SPEAK"."""
    mine: frozenset[str]
    """What is said to be one's own: the dog of "what is my dog called". None: it is about oneself."""
    must: frozenset[str]
    """Without these nothing tells it: "what is my FAVOURITE fruit"."""
    kind: str = ""
    """Which of the things in `everyday.py` it asks for; empty: none."""


def wanted(question: str) -> Wanted | None:
    """What it asks for that only the person can have told; None: nothing of the kind."""
    what, kind = _wanted(question), asked_for(question)
    if kind and what is None and (kind == "name" or _perhaps(question)):
        return Wanted(frozenset({kind}), frozenset(), frozenset(), frozenset(), kind)
    return replace(what, kind=kind) if what else None


def _perhaps(question: str) -> bool:
    """Whether one that asks for a job, a home or a trip may mean the person's own."""
    words = set(WORD.findall(question.casefold()))
    return personal(question) > PERHAPS and not words.isdisjoint(I | MY) and words.isdisjoint(_FOR_ADVICE)


def _wanted(question: str) -> Wanted | None:
    """The same by the words that say what is asked for."""
    whole = " ".join(WORD.findall(question.casefold()))
    for pattern, word in _PHRASES:
        whole = pattern.sub(word, whole)
    reminded = " ".join(_REMEMBER.findall(whole))
    rest = _TOLD_YOU.sub("i", _REMEMBER.sub("", whole))
    if max(map(personal, (question, rest))) <= LIKELY and not _in_other_languages(rest, reminded):
        return None
    words = rest.split()
    content = [word for word in words if word not in NOTHING]
    if not content:
        return None
    if content == ["old"]:
        content = ["age"]  # "I have an old car" tells nobody's
    half = frozenset(one for pair in _HALF.findall(rest) for one in pair if one)
    must = frozenset(word for word in words if word in _LIKES)
    owner = _OWNER.findall(question.casefold())
    of_hers = _counting(owner or ([] if must else [*_own(words)]))
    return Wanted(_counting(content), half | must, of_hers, must)


def _in_other_languages(rest: str, reminded: str) -> bool:
    """Whether it asks for something of one's own in another language than English."""
    known = set(rest.split())
    asks = reminded or _HOW.search(rest) or known & _ASKS_ELSEWHERE
    of_self = known & (MY | I) or "ich" in reminded.split()
    return bool(asks and of_self) and known.isdisjoint(_ADVICE) and _IN_ENGLISH.isdisjoint(known)


def of_somebody(question: str) -> tuple[str, Wanted] | None:
    """Whom a question asks about by a name, "Milo" of "Where does Milo live?", and what for; None: nobody.

    It does not say whether that is somebody of the person's, or one whom all the world knows.
    """
    named = _NAME.search(question)
    what = wanted(_NAME.sub("my friend", question, count=1)) if named else None
    if named is None or what is None or wanted(question) is not None:
        return None
    name = frozenset(WORD.findall(named[1].casefold()))
    if what.words <= {"friend"}:
        return None  # "Who is Milo?" asks for nothing of him
    return named[1], replace(what, words=what.words - {"friend"} | name, mine=name)


def is_hers(name: str, text: str) -> bool:
    """Whether a person who says this names somebody of her own: "My cousin Milo has a dog."."""
    ways = (way.format(re.escape(name)) for way in _OF_HERS)
    return any(re.search(way, text, re.IGNORECASE) for way in ways)


def own_things(question: str) -> str:
    """The thing that a question says to be one's own, in small letters: "old dog" of "my old dog called"."""
    words = WORD.findall(question.casefold())
    at = next((at for at, word in enumerate(words) if word in MY), len(words))
    first, *more = [*takewhile(lambda one: one not in NOTHING, words[at + 1 : at + 4])] or [""]
    return " ".join([first, *takewhile(lambda one: one not in _ATTRIBUTES, more)])


def _own(words: Sequence[str]) -> Iterator[str]:
    """What follows a word for one's own, up to a word that says nothing."""
    for at, word in enumerate(words):
        if word in MY:
            things = list(takewhile(lambda one: one not in NOTHING, words[at + 1 : at + 5]))
            verb = words[at - 1 : at] in (["do"], ["does"], ["did"])  # "when does my train leave?"
            yield from things[:-1] if verb and len(things) > 1 else things


def _counting(words: Sequence[str]) -> frozenset[str]:
    """Those that say what is asked for; what is asked of it alone where nothing else is said."""
    things = {word for word in words if word not in _ATTRIBUTES}
    return frozenset(things if things - _LIKES else words)
