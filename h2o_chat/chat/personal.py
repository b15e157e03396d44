"""Whether a question asks for what only the person can have told, and whether something said tells it; no model.

"What is my dog called?" does. "What is my best option?", "How do I fix my car?" and "What did you do to my
house?" speak of oneself too, but ask for advice, or for what somebody else knows. English is known best; of
other languages the words for what is one's own and the words that ask.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from h2o_chat.chat.finding import BEGINNING, TELLS, WORD, Finder, Found, unsaid


def _set(text: str) -> frozenset[str]:
    return frozenset(text.replace("·", " ").split())


_MY = _set("""
my our mine ours · mein meine meinen meinem meiner meines unser unsere unseren unserem unserer · mon ma mes
notre nos · mi mis nuestro nuestra nuestros nuestras · mio mia miei mie nostro nostra · meu minha meus minhas
nosso nossa · mijn onze · min mitt mina vår vårt · мой моя мое моё мои моего моей моих моему нашего наш наша
""")
_I = _set("""
i me myself we us · ich mich mir wir · je j me moi · yo me · io · eu · ik · jag mig · я меня мне мной мы нас
我 私 僕 俺
""")
_ASKING = _set("""
what who whom whose where when which · was wer wen wem wessen wo wann welche welcher welches welchen welchem
wohin woher · quel quelle quels quelles qui où quand combien que · qué cuál cuáles quién dónde cuándo cuántos
cuántas · che quale quali chi dove quando quanti quante · quem onde quantos quantas · wat waar wanneer welke
wie · vad vem var när vilken vilket · что кто кого где когда какой какая какое какие какого какую сколько чей
什 谁 誰 哪 几 多 何
""")
_HOW = re.compile(
    r"\b(?:how (?:old|many|much|long|often|far|tall|big|large|heavy|high|wide|deep|fast|late|early)"
    r"|wie (?:alt|viele?|groß|lange?|oft|weit|schwer|hoch|spät|heiß\w*|hieß\w*|ist|war|lautet)"
    r"|comment s|cómo (?:se|me) llam\w+|come si chiam\w+|como se cham\w+|hoe (?:oud|heet|veel|lang|groot|vaak)"
    r"|как (?:\w+ )?зовут)\b"
)
"""How much of something, or its name. Any other "how" asks for advice."""
_REMEMBER = re.compile(
    r"\b(?:(?:do|can|could|would|will) you (?:still |please |also )?(?:happen to )?"
    r"(?:remember|recall|know|tell me|remind me)(?: again| of)?"
    r"|(?:did|have|had|haven|didn) i (?:ever |already |not |just )?"
    r"(?:tell|told|mention|mentioned|say|said|give|given)(?: you)?(?: about)?"
    r"|what (?:did|have) i (?:tell|told|say|said)(?: to)?(?: you)?(?: about)?|remind me|tell me|you know"
    r"|weißt du(?: noch)?|erinnerst du dich(?: noch)?(?: an)?|kannst du mir (?:noch )?sagen"
    r"|habe? ich dir (?:schon )?(?:gesagt|erzählt)|tu te souviens(?: de)?|te souviens tu(?: de)?|tu sais|sais tu"
    r"|te acuerdas(?: de)?|recuerdas|sabes|ti ricordi|sai|(?:você )?se lembra(?: de)?|weet je(?: nog)?"
    r"|(?:ты )?помнишь|你 (?:还 )?(?:记 得|知 道))(?= |$)"
)
"""Asks whether the other one knows what follows, or was told it."""
_TOLD_YOU = re.compile(r"\bi (?:\w+ )?(?:told|gave|mentioned|said|sent|showed)(?: it)?(?: to)? you\b")
_ADVICE = _set("""
you your yours yourself · should shall can could would may might must ought will won · why · need needed if
whether wrong matter problem mistake mean means meaning happen happens happened happening difference
better chance chances option options choice choices right rights odds supposed good worth makes cause causes
people else
· du dir dich dein deine ihr euch sie ihnen · soll sollte sollten kann könnte können muss müsste darf würde
warum wieso weshalb brauche besser beste besten finde · tu toi vous votre dois peux puis pourrais devrais
faut pourquoi besoin meilleur meilleure · tú usted puedo debo debería podría necesito mejor · voi posso devo
dovrei potrei perché bisogno migliore · você vocês seu sua preciso porque melhor · jij je jouw moet zou mag
waarom beste · du dig ska bör varför bästa · ты вы тебя тебе вас вам твой можно должен должна нужно стоит могу
почему зачем лучше лучший · 你 您 怎 该 应 君
""")
"""A question with one of these asks for advice, for an opinion, or for what somebody else did."""
_ADVISE = re.compile(
    r"\b(?:have to|had to|best (?:way|thing|time|place)|best to|how to|does it take|going to|what about|time is it)\b"
)
_EVERYBODY = _set("""
life purpose planet country sun world society body brain history joke dream dreams mind
deserve miss missing
""")
"""What a person does not tell, though it is "my" or "our"."""
_DO_I = re.compile(r"\bdo (?:i|we) (\w+)")
_HABIT = re.compile(r"\b(?:usually|always|normally|often|currently|every|(?:what|much) time do i)\b")
_HAVE_I = re.compile(
    r"(?:do i (?:have|own) (?:an?|any)\b|am i (?:\w+ )?(?:married|single|allergic|insured|vegetarian|vegan)\b)"
)
_ALWAYS = _set("""
have own live work like love prefer hate dislike enjoy keep take speak play drive weigh study support collect
earn belong wear feed teach train commute attend go do wake sleep use know want owe pay eat drink read stop
start leave
""")
"""What is told of oneself: "where do I live?". With other words it is advice: "where do I click?"."""
_HAVE = _set("""
have has had got get own bought buy adopted chose made created lost found named lent parked sold ordered
""")
_HALF = re.compile(
    r"\b(?:(?:do|did|have|had|am|was) i|to) (\w+)"
    r"|\b(?:what|which|how many) (\w+)(?= (?:is|are|was|were|do|does|did)\b)"
)
_OWNER = re.compile(r"\b(?:my|our) (?:\w+ ){0,2}?(\w+)['’]s? ")
_OTHERS = _set("his her their your")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
_HAVE_NOT = _set("been to rather than")
"""Beside these it says nothing of the kind: "I have been to the dog"."""
_APOSTROPHES = ("'", "’")
DOES = 2
"""So many words before what a person does she says that it is she: "I also speak Polish"."""
NEAR = 3
"""So many words before a thing say whose it is: "my good old dog"."""
_ATTRIBUTES = _set("""
name names called call named number kind type sort old age many much long often far big time day date year
month colour color brand favourite favorite size title exactly again now first last new
""")
"""What is asked of something: it counts where nothing else is asked for."""
_NOTHING = (
    _set("""
a an the of in on at to for from with by about as and or but not no that this these those there here it its is
are was were be been am do does did done have has had having how s t d ll re ve he she him her his they them
their one ones some any also so well ok okay hey hi oh please just way go going get got say said tell told give
gave put make made doing want wanted take took let know remember still already ever own currently end terms amount
· der die das den dem ein eine ist sind waren habe hast im am an auf von zu und noch
· le la les un une est sont était ai as a de du des il elle · el los las es era he ha del
· il lo gli è sono era ho di · o os as é são tenho · de het een heb hoe · у в на это
的 是 叫 么 么 了 吗 在 有 の は が を に で す か ま し た て い
""")
    | _MY
    | _I
    | _ASKING
)
"""Words that say nothing of what is asked for."""
_SAME = {
    one: _set(others)
    for one, others in {
        "age": "years born",
        "birthday": "born",
        "buy": "bought",
        "buying": "bought",
        "study": "studied",
        "spend": "spent",
        "leave": "left",
        "meet": "met",
        "lend": "lent",
        "choose": "chose",
        "pay": "paid spent cost",
        "teach": "taught",
        "drive": "drove car",
        "write": "wrote",
        "eat": "ate",
        "drink": "drank",
        "wear": "wore",
        "sell": "sold",
        "grow": "grew",
        "lose": "lost",
        "win": "won",
        "find": "found",
        "keep": "kept",
        "build": "built",
        "send": "sent",
        "see": "saw",
        "watch": "saw watched",
        "fly": "flew",
        "get": "got",
        "job": "work works working job",
        "occupation": "work job",
        "work": "job",
        "live": "moved address home",
        "address": "live",
        "married": "wife husband",
        "wife": "married",
        "husband": "married",
        "children": "kids son daughter",
        "phone": "mobile",
        "mother": "mum mom",
        "father": "dad",
        "wedding": "married marry marrying",
    }.items()
}
"""Words that tell the same, where their beginnings differ."""
MOST = 0.75
MORE = 0.6
HALF = 0.5
SOME = 0.4
"""Something said tells what is wanted if so much of the words stands in it, by what they count."""


@dataclass(frozen=True)
class Wanted:
    """What a question asks for."""

    words: frozenset[str]
    half: frozenset[str]
    """Those that count half: what somebody does, and of which kind the answer is, "which language do I speak?"."""
    mine: frozenset[str]
    """Those of what is said to be one's own: of "what is my dog called?" the dog. None: it is about oneself."""


def wanted(question: str) -> Wanted | None:
    """What it asks for that only the person can have told; None: nothing of the kind."""
    whole = " ".join(WORD.findall(question.casefold()))
    reminded = " ".join(_REMEMBER.findall(whole)).split()
    rest = _TOLD_YOU.sub("i", _REMEMBER.sub("", whole))
    words = rest.split()
    known, measure = set(words), _HOW.search(rest)
    asks = measure or _HAVE_I.match(rest) or ((reminded or known & _ASKING) and "how" not in known)
    of_self = known & _MY or known & _I - {"we", "us"} or {"i", "ich"} & set(reminded)
    if not asks or not of_self or known & (_ADVICE | _EVERYBODY) or _ADVISE.search(rest):
        return None
    if (do := _DO_I.search(rest)) and do[1] not in _ALWAYS and not _HABIT.search(rest):
        return None
    content = [word for word in words if word not in _NOTHING]
    if content == ["old"]:
        content = ["age"]  # "an old car" tells nobody's
    owners = _OWNER.findall(question.casefold())  # in "my boss's name" it is the boss who is mine
    half = frozenset(one for pair in _HALF.findall(rest) for one in pair if one)
    return Wanted(_counting(content), half, _counting(owners or list(_own(words)))) if content else None


def _own(words: Sequence[str]) -> Iterator[str]:
    """What follows a word for one's own, up to a word that says nothing."""
    for at, word in enumerate(words):
        if word in _MY:
            things = list(takewhile(lambda one: one not in _NOTHING, words[at + 1 : at + 5]))
            verb = words[at - 1 : at] in (["do"], ["does"], ["did"])  # "when does my train leave?"
            yield from things[:-1] if verb and len(things) > 1 else things


def _counting(words: Sequence[str]) -> frozenset[str]:
    counting = [word for word in words if word not in _ATTRIBUTES] or words
    return frozenset(counting)


def told(finder: Finder, question: str, what: Wanted) -> Found | None:
    """Of what was said, what tells this best; None: nothing does."""
    like = {form[:BEGINNING] for word in what.words for form in _forms(word)}
    counts = {
        word: finder.count(word[:BEGINNING]) * (0.5 if word in what.half else 1.0) for word in what.words
    }
    some = {at for at, text in finder.with_any(like) if _tells(text, what, counts)}
    if len(what.words) == 1:
        some |= {at for at, _ in finder.with_any({unsaid(one) for one in what.words & TELLS.keys()})}
    return finder.best_of(question, some)


def names(text: str, what: Wanted) -> bool:
    """Whether at least half of the words stand in a text."""
    return 2 * len(_standing(what.words, WORD.findall(text.casefold()))) >= len(what.words)


def _standing(words: Collection[str], said: Sequence[str]) -> set[str]:
    """Those that are said, in whatever form."""
    beginnings: dict[str, list[str]] = {}
    for one in said:
        beginnings.setdefault(one[:BEGINNING], []).append(one)
    return {
        word
        for word in words
        for form in _forms(word)
        if any(_alike(form, one) for one in beginnings.get(form[:BEGINNING], ()))
    }


def _forms(word: str) -> set[str]:
    """The word, and what tells the same and begins otherwise."""
    forms = {word, *_SAME.get(word, ())}
    return forms | {one + more for one in forms if len(one) < BEGINNING for more in ("s", "d", "ed", "ing")}


def _alike(word: str, other: str) -> bool:
    """Whether two words with the same beginning are forms of one: no `book` is a `bookshelf`, no train a trainer."""
    short, long = sorted((_ENDING.sub("", word), _ENDING.sub("", other)), key=len)
    return len(long) - len(short) <= 3 and not long[len(short) :].startswith(("er", "or"))


def _tells(text: str, what: Wanted, counts: dict[str, float]) -> bool:
    """Whether it tells what is wanted: enough of the words, said of oneself, or of what is one's own."""
    said = list(WORD.finditer(text.casefold()))
    words = [found[0] for found in said]
    standing = _standing(what.words, words)
    share = sum(counts[word] for word in standing) / (sum(counts.values()) or 1.0)
    speaks = [word in _I and word != "me" for word in words]  # "find me a film" tells nothing
    own = any(word in _MY for word in words)
    if len(what.words) > 1 and share >= MOST and (any(speaks) or (not own and _OTHERS.isdisjoint(words))):
        return True
    if not what.mine:
        does = any(
            True in speaks[max(0, at - DOES) : at] and _standing(standing, [word])
            for at, word in enumerate(words)
        )
        return (share >= MORE and (any(speaks) or own)) or (share >= SOME and does)
    if share < SOME:
        return False
    mine = _standing(what.mine, words)
    of = sum(one for word, one in counts.items() if word in what.mine) or 1.0
    if sum(counts.get(word, 0.0) for word in mine) / of < HALF:
        return False
    for at, found in enumerate(said):
        if _standing(mine, [found[0]]):
            before = said[max(0, at - NEAR) : at]
            # In "my boss's name" the name is not mine.
            belongs = [n for n, one in enumerate(before) if text[one.end() : one.end() + 1] in _APOSTROPHES]
            if any(one[0] in _MY for one in before[belongs[-1] + 1 if belongs else 0 :]):
                return True
            has = {one[0] for one in before}
            if any(speaks[:at]) and has & _HAVE and not has & _HAVE_NOT:
                return True
    return False
