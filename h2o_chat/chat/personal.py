"""Whether a question asks for something that only the person can have told, and by which words; no model.

"What is my dog called?" does. "What is my best option?", "How do I fix my car?" and "What did you do to my
house?" speak of oneself too, but ask for advice, or for what somebody else knows. English is known best; of
other languages the words for what is one's own, and those that ask. Whether it was told: `told.py`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from h2o_chat.chat.everyday import asked_for
from h2o_chat.chat.finding import WORD


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
_ASKING = word_set("""
what who whom whose where when which whats whos wheres whens
was wer wen wem wessen wo wann welche welcher welches welchen welchem
wohin woher · quel quelle quels quelles qui où quand combien que · qué cuál cuáles quién dónde cuándo cuántos
cuántas · che quale quali chi dove quando quanti quante · quem onde quantos quantas · wat waar wanneer welke
wie · vad vem var när vilken vilket
что кто кого где когда какой какая какое какие какого какую сколько чей
什 谁 誰 哪 几 多 何
""")
_HOW = re.compile(
    r"\b(?:how (?:old|many|much|long|often|far|tall|big|large|heavy|high|wide|deep|fast|late|early)"
    r"|how (?:\w+ )?do i (?:like|prefer|take|drink|spell|commute|want)|how did (?:i|we)"
    r"|wie (?:alt|viele?|gross|lange?|oft|weit|schwer|hoch|spät|heiss\w*|hiess\w*|ist|war|lautet)"
    r"|comment s|cómo (?:se|me) llam\w+|come si chiam\w+|como se cham\w+"
    r"|hoe (?:oud|heet|veel|lang|groot|vaak)|как (?:\w+ )?зовут)\b"
)
"""How much of something, or its name. Any other "how" asks for advice."""
_HAVE_I = re.compile(
    r"(?:do i (?:have|own) (?:an?|any)|am i (?:\w+ )?(?:married|single|allergic|insured|vegetarian|vegan))\b"
)
_WHETHER_I = re.compile(
    r"have i (?:ever |already )?(?:been|had|seen|got|done|met|visited|eaten|read)\b"
    r"|(?:is|does|did|was|has) my (?:\w+ )?(?:father|mother|dad|mum|mom|brother|sister|son|daughter|wife"
    r"|husband|partner|girlfriend|boyfriend|friend|boss|aunt|uncle|cousin|grandmother|grandfather|dog|cat)\b|"
    r"(?:do|did) i(?! (?:need|want|have to|has|look|sound|know|say|do|get|owe|see|hear|think)\b)"
    r"|am i(?! (?:\w+ )?(?:allowed|supposed|going|able|right|wrong|late|early|too|the only|in|doing|being"
    r"|making|missing|so|just|not)\b)"
)
""" "Am I allergic to nuts?", "Do I have a garden?"; not what asks for advice, or for an opinion."""
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
_ADVICE = word_set("""
you your yours yourself · should shall can could would may might must ought will won · why · need needed if
whether wrong matter problem mistake mean means meaning happen happens happened happening difference better
chance chances option options choice choices right rights odds supposed good worth makes cause causes else
· du dir dich dein deine ihr euch sie ihnen · soll sollte sollten kann könnte können muss müsste darf würde
warum wieso weshalb brauche besser beste besten finde · tu toi vous votre dois peux puis pourrais devrais
faut pourquoi besoin meilleur meilleure · tú usted puedo debo debería podría necesito mejor · voi posso devo
dovrei potrei perché bisogno migliore · você vocês seu sua preciso porque melhor · jij je jouw moet zou mag
waarom beste · dig ska bör varför bästa · ты вы тебя тебе вас вам твой можно должен должна нужно стоит могу
почему зачем лучше лучший · 你 您 怎 该 应 君
""") - {"je"}
"""A question with one of these asks for advice, for an opinion, or for what somebody else did."""
_FOR_ADVICE = (_ADVICE | word_set("help recommend suggest write explain pack improve")) - word_set(
    "you your yours yourself could would will can may might shall happen"
)
"""These ask for advice in any question: "Could you tell me where I travel?" does not."""
_ADVISE = re.compile(
    r"\b(?:(?<!when do i )(?<!day do i )(?<!time do i )have to|had to|best (?:way|thing|time|place)|best to"
    r"|how to|does it (?:take|cost)|going to"
    r"|what about|time is it|way to|synonym|do (?!i )\w+ (?:say|do|think)|do i (?:say|think))\b"
    r"|\bwhat do i do\b(?! (?:for|in|on|at|every|after|before)\b)"
)
_EVERYBODY = word_set("""
life purpose planet country sun world society body brain history joke dream dreams mind deserve miss missing
""")
"""What a person does not tell, though it is "my" or "our"."""
_BESIDE = word_set("with after before for against than like near")
"""Before "my" it is asked for something else: "which colour goes with my curtains?"."""
_KEPT = word_set("code pin password passcode number key combination size date time deadline appointment")
""" "For my" follows what is one's own."""
_DO_WE = re.compile(r"\bdo we (?:have|keep|own|grow|live)\b")
_DO_I = re.compile(r"\bdo (?:i|we) (\w+)")
_PLAIN = re.compile(r"\b(?:what|where|how) do (?:i|we)\b")
""" "Where do I ..." asks for advice more often than "who do I ..." and "which game do I ..."."""
_TASKS = word_set("""
need use press click choose pick contact ask report fix change remove install download add apply enter
select type write calculate solve convert find fill tell say prepare cook boil cut clean turn avoid
start begin open close replace plant prune water feed set
""")
"""Who asks which of these to do asks for advice."""
_ALWAYS = word_set("""
have own live work like love prefer hate dislike enjoy keep take speak play drive weigh study support collect
earn belong wear feed teach train commute attend go do wake sleep use know want owe pay eat drink read stop
start leave suffer practise begin call run jog swim skate ski surf climb dance knit paint bake perform sing
pray worship store regret vote volunteer celebrate share bank adore admire dread fear miss spend nap meet grow
""")
"""What is told of oneself: "where do I live?". With other words it is advice: "where do I click?"."""
_HABIT = re.compile(r"\b(?:usually|always|normally|often|currently|every|(?:what|much) time do i)\b")
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
· der die das den dem ein eine ist sind waren habe hast im am an auf von zu und noch
· le la les un une est sont était ai de du des il elle · el los las es era ha del · lo gli è sono era ho di
· o os as é são tenho · het een heb hoe · у в на это
的 是 叫 么 了 吗 在 有 の は が を に で す か ま し た て い
""")
    | MY
    | I
    | _ASKING
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
    whether: bool = False
    """A yes or no would do, and who has told nothing of it may ask for advice: "Is my dog ill?"."""


def wanted(question: str) -> Wanted | None:
    """What it asks for that only the person can have told; None: nothing of the kind."""
    what, kind = _wanted(question), asked_for(question)
    if kind and what is None and (kind == "name" or not _advises(question)):
        return Wanted(frozenset({kind}), frozenset(), frozenset(), frozenset(), kind)
    return replace(what, kind=kind) if what else None


def _advises(question: str) -> bool:
    """Whether it asks for advice, or speaks of nobody's own: "Where does this road go?"."""
    words = set(_REMEMBER.sub("", " ".join(WORD.findall(question.casefold()))).split())
    return bool(words & _FOR_ADVICE) or words.isdisjoint(I | MY)


def _wanted(question: str) -> Wanted | None:
    """The same by the words that say what is asked for."""
    whole = " ".join(WORD.findall(question.casefold()))
    for pattern, word in _PHRASES:
        whole = pattern.sub(word, whole)
    reminded = " ".join(_REMEMBER.findall(whole)).split()
    rest = _TOLD_YOU.sub("i", _REMEMBER.sub("", whole))
    words = rest.split()
    known = set(words)
    openly = _HOW.search(rest) or ((reminded or known & _ASKING) and "how" not in known)
    asks = openly or _HAVE_I.match(rest) or _WHETHER_I.match(rest)
    mine = [at for at, word in enumerate(words) if word in MY and not _is_beside(words[max(0, at - 2) : at])]
    of_self = mine or known & I - {"we", "us"} or {"i", "ich"} & set(reminded) or _DO_WE.search(rest)
    if not asks or not of_self or known & (_ADVICE | _EVERYBODY) or _ADVISE.search(rest):
        return None
    do = _DO_I.search(rest)
    known_to_do = do is None or do[1] in _ALWAYS or _HABIT.search(rest)
    if do is not None and not known_to_do and (do[1] in _TASKS or _PLAIN.search(rest)):
        return None
    content = [word for word in words if word not in NOTHING]
    if not content:
        return None
    if content == ["old"]:
        content = ["age"]  # "I have an old car" tells nobody's
    half = frozenset(one for pair in _HALF.findall(rest) for one in pair if one)
    must = frozenset(word for word in words if word in _LIKES)
    owner = _OWNER.findall(question.casefold())
    of_hers = _counting(owner or ([] if must else [*_own(words)]))
    whether = not openly and not _HAVE_I.match(rest)
    return Wanted(_counting(content), half | must, of_hers, must, whether=whether)


def _is_beside(before: Sequence[str]) -> bool:
    """Whether a word that follows these is only beside what is asked for.

    It is not in "who looks after my fish" and "the code for my door".
    """
    if not before or before[-1] not in _BESIDE:
        return False
    return not (before[0].startswith("look") or (before[-1] == "for" and before[0] in _KEPT))


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
