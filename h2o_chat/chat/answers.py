"""What an answer must have: a number, a time, a place, a colour. English alone is known."""

import re

_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|(?:twen|thir|for|fif"
    r"|six|seven|eigh|nine)ty|hundred|thousand|twins|half|first|second|third|once|twice|none|no|every|daily|never|always)\b"
)
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
        re.compile(r"^(?!.*\b(?:who|where|when|which)\b).*\b(?:number|pin|postcode|weight|height|price)\b"),
        _NUMBER,
    ),
    (re.compile(r"\bwhen\b|\bwhat time\b|\b(?:which|what) (?:day|date|month|year)\b"), _TIME),
    (re.compile(r"\bwhere\b"), _PLACE),
)


def may_answer(question: str, text: str) -> bool:
    """Whether a text has what the question asks for, of those. Both in small letters."""
    return all(answer.search(text) for asked, answer in _ASKED if asked.search(question))
