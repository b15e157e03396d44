"""What an answer must have: a number, a time, a place, a colour. English alone is known."""

import re

from h2o_chat.chat.finding import WORD
from h2o_chat.chat.neighbours import plain
from h2o_chat.chat.personal import NOTHING, word_set

_COUNTED = (
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|half|first|second|third)\b"
)
_DIGITS = re.compile(_COUNTED)
_NUMBER = re.compile(rf"{_COUNTED}|\b(?:twins|once|twice|none|no|every|daily|never|always)\b")
_TIME = re.compile(
    r"\d|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august"
    r"|september|october|november|december|today|tomorrow|yesterday|tonight|mornings?|noon|midday|afternoon|evening"
    r"|nights?|midnight|weeks?|weekend|months?|years?|summer|winter|spring|autumn|fall|christmas|easter|soon|ago"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|half"
    r"|first|second|third|fourth|ninth)\b"
)
_PLACE = re.compile(
    r"\b(?:in|at|on|under|behind|near|to|from|inside|beside|by|between|above|next|below|into|over"
    r"|through|with|for|here)\b"
)
_COLOUR = re.compile(
    r"colou?r|\b(?:red|blue|green|yellow|black|white|brown|gr[ae]y|purple|pink|orange|silver|gold(?:en)?"
    r"|turquoise|beige|violet|teal|cream|navy|olive|burgundy|scarlet|crimson|maroon|bronze|copper|amber|lilac|lavender|indigo"
    r"|ivory|tan|khaki|charcoal|emerald|mint|peach|mauve|blonde?|brunette|ginger|auburn|chestnut)\b"
)
_ASKED = (
    (re.compile(r"\b(?:what|which) colou?r\b"), _COLOUR),
    (re.compile(r"\bhow (?:old|many|much|tall|heavy|far|high|wide|large|fast|often)\b|\bsize\b"), _NUMBER),
    (
        re.compile(
            r"^(?!.*\b(?:who|where|when|which)\b).*\b(?:number|pin|postcode|weight|height|price|salary|income|wage)\b"
        ),
        _DIGITS,
    ),
    (re.compile(r"\bwhen\b|\bwhat time\b|\b(?:which|what) (?:day|date|month|year)\b"), _TIME),
    (re.compile(r"\bwhere\b"), _PLACE),
)
_NAME = re.compile(r"\bwhats?\b.*\b(?:called|names?)\b")
_NAMED = re.compile(r"\b(?:called|named?|names|nicknamed?|call)\b")
_WHO = re.compile(r"^whos?\b(?: is| are| was)? (?:my|our)\b")
_WHO_IT_IS = re.compile(r"\b(?:my|our) (?:\w+ ){1,2}(?:is|are|was|were) (?!on|at|in)")
"""Says who somebody is without a name: "My landlord is the baker downstairs."."""
_NO_NAMES = (
    NOTHING
    | word_set("""
monday tuesday wednesday thursday friday saturday sunday january february march july september october
november december yeah yes no yep nope oh ah hm wow well ok okay hey hi hello thanks thank please sure sorry
great nice good cool actually maybe perhaps because when while if since after before today tomorrow yesterday
now then
""")
) - {"will", "may"}
"""Written with a capital letter, and no names: days, first words of a sentence. Will and May are names."""


def may_answer(question: str, text: str) -> bool:
    """Whether a text has what the question asks for, of those.

    Args:
        question: its words, in small letters.
        text: as it was typed.
    """
    if _NAME.search(question) and not _has_name(text):
        return False
    if _WHO.search(question) and not (_has_name(text) or _WHO_IT_IS.search(text.casefold())):
        return False
    said = plain(text)
    return all(answer.search(said) for asked, answer in _ASKED if asked.search(question))


def _has_name(text: str) -> bool:
    """Whether somebody or something is named; in a text with no capital letter at all that is not known."""
    return (
        _NAMED.search(text.casefold()) is not None
        or text == text.casefold()
        or any(one[:1].isupper() and one.casefold() not in _NO_NAMES for one in WORD.findall(text))
    )
