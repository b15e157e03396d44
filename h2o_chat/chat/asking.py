"""Whether a sentence asks, with a question mark or without, and what; no model.

A request tells nothing: "Please tell me what my cat is called." asks as "What is my cat called?" does.
Without a question mark English alone is known, and only what asks for something of one's own, by ways to ask
and by what was learned from examples (`learned.py`): "Tell me about trains." is for the model.
"""

import re
from collections.abc import Iterator

from h2o_chat.chat.learned import personal

SHORT_WORDS = 4
"""A last question of so many words may only go on with the one before it: "You know?"."""
SURELY = 3.0
"""Log-odds from which on a sentence without a question mark asks. Of 1,190 sentences that tell something one
has as much (docs/RECALL.md); with 2, small talk was taken for questions."""
PIECE_CHARACTERS = 200
"""Of what is found at once: a longer message is cut, where a sentence ends if one does."""

_ENDS = "?\uff1f\u061f\u037e\u055e"
"""Question marks: Latin, Chinese, Arabic, Greek, Armenian."""
_MARKED = re.compile(rf"[{_ENDS}][^\w{_ENDS}]*$")
_STOPS = ".!?\uff1f\u061f\u037e\u055e\u3002\uff01\u0964"
_SENTENCE = re.compile(rf".+?(?:(?<![{_STOPS}])[{_STOPS}]+[\"'»”)\]]*(?=\s|$)|\u3002|\uff1f|\n|$)", re.S)
"""Stops end it where they begin: looked for in the middle of many dots, each would be looked at from each."""

_HELLO = (
    r"(?:hello|hallo|hi|hiya|hey|ok|okay|thanks|thank you|dear|good (?:morning|day|afternoon|evening|night)"
    r"|bonjour|bonsoir|salut|hola|ciao|buongiorno|olá|hej|привет|здравствуйте|guten (?:tag|morgen|abend))"
)
_FIRST = (
    r"(?:pocket|assistant|computer|robot|bot|friend|buddy|mate|dude|well|oh|ah|hmm+|now|right|all ?right"
    r"|great|nice|cool|fine|sure|yes|yeah|no|sorry|excuse me|pardon|please|listen|look|wait|actually|anyway"
    r"|by the way|btw|(?:just |i have )?(?:a|one|another) (?:more |last |quick |other )?(?:question|thing)"
    r"|(?:quick|last|next) question"
    r"|i(?: have|['’]ve)? forgot(?:ten)?|(?:tell|remind) me)"
)
_GREETING = re.compile(
    rf"(?:{_HELLO}(?: [\w'’]+){{0,2}}|{_FIRST}) *(?:[,;:–—]|\.\.+|…|- ) *|{_HELLO} (?:there )?", re.I
)
"""What is said before a question, up to its comma, perhaps with a name: "Hello Pocket, what is ..."."""

_SELF = r"(?:my|our|i|we)\b"
_WHAT = rf"(?:what|which|who|whom|whose|where|when|how)\b(?: (?!{_SELF})[\w'’]+){{0,5}} {_SELF}"
"""As in "what my cat is called", "what the name of my cat is"."""
_OWN = r"(?:(?:my|our)\b|the (?:\w+ ){1,2}(?:of |for |that )?(?:my|our|i|we)\b)"
"""As in "my cat's name", "the name of my cat", "the number that I gave you"."""
_NOTHING = r"(?!.*\b(?:is|are|was|were|has)\b)"
"""Nothing is said of it: "Did I tell you that my cat is called Luna." asks for nothing."""
_IT = rf"(?:about |of )?{_OWN}{_NOTHING}"
_KINDLY = re.compile(r"(?:please|just|also|and|so|but|now|(?:can|could|would|will) you(?: please)?) ", re.I)
_REQUEST = re.compile(
    "|".join(
        (
            rf"(?:tell|remind) me(?: again| please)? (?:{_WHAT}|{_IT})",
            rf"(?:let me know|say|guess|remember|recall) {_WHAT}",
            rf"do you (?:still |even )?(?:remember|recall|know) (?:{_WHAT}|{_IT})",
            rf"(?:did|have) i (?:ever |already )?(?:tell|told) you (?:{_WHAT}|{_IT})",
            rf"(?:i|we)(?:['’]d| would)? (?:want|need|like|wish) to (?:know|hear) (?:{_WHAT}|{_IT})",
            rf"i(?: have|['’]ve)? (?:forgot(?:ten)?|wonder) {_WHAT}",
            rf"i(?:['’]m| am| was) (?:wondering|asking(?: you)?) {_WHAT}",
            rf"i (?:can['’]?t|can ?not|don['’]?t|do not|no longer) (?:remember|recall) (?:{_WHAT}|{_IT})",
            # The mark was left out. "What I like is my dog." and "What matters is my dog." ask for nothing.
            rf"(?:what|which|whom?|whose|where|when|why|how)(?: (?!{_SELF})\w+){{0,5}}"
            rf" (?:do|does|did|have|had|am|will) {_SELF}",
            rf"how (?:old|many|much|long|often|far|big|tall)(?: \w+)? (?:is|are|was|were|has) {_SELF}",
            rf"who \w+ (?:me )?{_OWN}",
            rf"(?<!so )(?:do|did|am|have) (?:i|we)\b{_NOTHING}",
            rf"(?:what|which) (?:\w+(?<!s)(?<!ed) )?(?:is|are|was|were) (?:i\b|{_OWN})",
            rf"(?:(?:what|who|where|when)['’]?s|(?:who|where|when) (?:is|are|was|were)) (?:i\b|{_OWN})",
        )
    ),
    re.I,
)
_MORE = re.compile(r"[,;:–—]|\b(?:but|because|so)\b|\b(?:is|are)\b.*\b(?:is|are)\b", re.I)
"""Who says more perhaps tells it: "I forgot what my code is, so I looked: 4821"."""
_THANKS = re.compile(r"(?:,? (?:please|pls|again|thanks|thank you|now|sorry))*[.!\"'»”)\s]*$", re.I)
_TELLS_TOO = re.compile(r"[:\d–—]|(?<=\w )(?!I\b)[A-ZÀ-ÞА-ЯЁ]|\b(?i:is|was|are|were|has|had|gave|said|say)\b")
"""What a sentence that tells something may have, and a bare request has not."""
_WHAT_OF_IT = re.compile(
    r"(?:and |so )?(?:(?:what|who|where|when|which)(?: (?:is|was) (?:it|that|he|she))?"
    r"|(?:his|her|its|their) \w+)\W*$",
    re.I,
)
"""Means what stands in the sentence before."""


def asks(sentence: str) -> bool:
    """Whether it ends in a question mark, of whatever script, or asks for what is one's own without one."""
    return _MARKED.search(sentence) is not None or _requests(sentence)


def asks_only(sentence: str) -> bool:
    """Whether it asks and tells nothing: "The number of my locker: 4821" may be a fact, and must be found."""
    return asks(sentence) or (personal(sentence) > SURELY and _TELLS_TOO.search(sentence) is None)


def question_of(text: str) -> str:
    """The last sentence that asks, without a greeting before it; empty where none does.

    Of "What is my dog called? You know?" the first is meant, of "I have an uncle in Mersin. His name?" both.
    """
    before, asking = "", []
    for sentence in sentences(text):
        one = sentence[_greeting(sentence) :]
        both = f"{before} {one}" if before and _WHAT_OF_IT.match(one) else ""
        if both and personal(both) > (0.0 if asks(one) else SURELY):
            asking.append(both)
        elif asks(sentence) or personal(one) > SURELY:
            asking.append(one)
        before = sentence
    of_her = [sentence for sentence in asking if personal(sentence) > 0]
    short = asking and len(asking[-1].split()) <= SHORT_WORDS
    return (of_her if of_her and short else asking or [""])[-1]


def sentences(text: str) -> Iterator[str]:
    """Each cut to PIECE_CHARACTERS, at a space where there is one."""
    for sentence in _SENTENCE.findall(text):
        rest = " ".join(sentence.split())
        while len(rest) > PIECE_CHARACTERS:
            at = rest.rfind(" ", 1, PIECE_CHARACTERS)
            at = PIECE_CHARACTERS if at < 0 else at
            yield rest[:at]
            rest = rest[at:].strip()
        if rest:
            yield rest


def _greeting(sentence: str) -> int:
    """How many characters of a sentence greet."""
    at = 0
    while found := _GREETING.match(sentence, at):
        at = found.end()
    return at if at < len(sentence) else 0


def _requests(sentence: str) -> bool:
    at = _greeting(sentence)
    while kindly := _KINDLY.match(sentence, at):
        at = kindly.end()
    if (found := _REQUEST.match(sentence, at)) is None:
        return False
    return _MORE.search(_THANKS.sub("", sentence[found.end() :])) is None
