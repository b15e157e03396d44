"""What people ask an assistant about themselves most, in whatever words: name, job, home, trip; no model.

"Who am I?" shares no word with "People call me Sven.". Each of the four has ways to ask for it and ways to
tell it. They were written for the phrases that `pocket` learned from, and measured on others
(docs/RECALL.md). English alone is known.
"""

import re
from functools import lru_cache

_NAMES = r"(?:(?:first|own|full|real|given|user) )?names?"
_THEY = r"(?:people|others|friends|everyone|everybody|they|you|my \w+)"
_JOB = r"(?:jobs?|profession|occupation|trade|career|position|post|line of work|job title)"
_OTHER_JOB = r"(?<!dream )(?<!first )(?<!last )(?<!old )(?<!next )"
_DOER = r"(?:er|or|ist|ian|ant|yst|eon|chef|cook|guard|pilot|nurse|vet|judge|smith|man|woman|clerk)"
_NO_JOB = (
    r"(?!\w*(?:father|mother|brother|sister|daughter|vegetarian|person|older|younger|better|later|winner"
    r"|member|owner|lover|smoker|drinker|beginner|sooner|never|ever|over|another|other)\b)"
)
_PLACE = r"(?:town|city|village|place)"
_AWAY = r"(?:trip|holidays?|vacation|journey|tour|travels?|tickets?|flight)"
_GO = r"(?:go|going|goes|travel\w*|fly|flying|head\w*|off|visit\w*|driv\w+|be staying|be next week)"
_RIDE = r"(?:train|bus|plane|ship|road|way|path|ticket|flight|journey|trip|tour)"
_PLANNED = r"(?:say|tell|mention|book|plan|choose|decide|want)"
_WENT = rf"\b(?:did (?:i|we)\b(?! {_PLANNED})|do i go (?:\w+ing|to)\b)"
"""Asks for what was, or is done every week."""
_END = r"(?= *(?:[?.,!]|$))"
_DAYS = (
    r"(?!(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
    r"|January|February|March|April|May\b|June|July|August|Sept|Octo|Novem|Decem)"
)
_X = rf"{_DAYS}[A-ZÀ-ÞА-ЯЁ]\w+"
"""A name of somebody, or of a place."""

_ASKED = {
    "name": (
        rf"\bmy {_NAMES}\b",
        r"\b(?:user ?name|name of (?:the person|(?:this|your|the) user)|name for me)\b",
        r"\bname i (?:used?|gave|told)\b",
        r"^\W*\w* ?i am\W*$|\bi am \.\.\.",
        r"\bwho i am\b|\bwho am i(?= *(?:[?.,!]|$| again| now| to you))",
        r"\b(?:what|how) (?:am|was) i (?:called|named)\b|\bwhat i['’ ]?a?m called\b",
        r"\bwhat do i (?:answer to|go by)\b|\bme by my\b",
        rf"\b(?:what|how) (?:do|does|did|would|should|can|will) {_THEY} (?:call|name|address) me\b",
        r"\bwho(?:m|se)? (?:are|do|messages are) you (?:talk|speak|chat|read|help)"
        rf"\w*(?: (?:to|with)| now)*{_END}",
        rf"\bwho you (?:are )?(?:talk|speak)\w* (?:to|with){_END}",
        r"\bwho (?:is|am) (?:\w+ )?(?:speaking|talking|writing|typing|asking|chatting)\b",
        r"\b(?:who|what person) is (?:your user|in front of you|asking)\b",
        r"(?=.*\b(?:i|me|my)\b)\b(?:what|which) name\b(?!.*\b(?:my (?!parents|mother)|our|for the))",
        r"\bintroduced? my?(?:self|e)\b",
        r"\bdo(?:n['’]t)? you (?:know|remember|recognise) me\b",
    ),
    "job": (
        rf"^(?!.*\b(?:when|where|how|who|why|should|like|love|hate|about|find|wear|earn)\b)(?!.*['’]s {_JOB})"
        rf"(?=.*\b(?:i|my|me|mine)\b).*\b{_OTHER_JOB}{_JOB}\b(?! (?:interview|offer|cent|goal))",
        rf"\bmy work{_END}",
        r"\bwho am i at work\b|\bwhat am i (?:by|at work)\b",
        r"\bwhat (?:is it (?:that )?)?(?:do|did)? ?i (?:even )?(?:do|work)(?: as)?"
        rf"(?: (?:again|for (?:a living|work|money)|at work|every day|all day))?{_END}",
        rf"\bdo i work as\b|\bby trade{_END}|\btitle i have\b|\bas a what\b",
        r"\bi (?:earn|make) (?:my|a) (?:living|money|bread)\b|\bkeeps me busy\b",
    ),
    "home": (
        r"\bwhere\b(?:.* (?:i|we))? (?:now |still |actually )?"
        r"(?:live|lived|living|settled?|reside|dwell|am based|am at home)\b",
        r"\bwhere (?:am|are) (?:i|we) (?:based|at home|from)\b",
        rf"\bwhere (?:do|did) (?:i|we) (?:come from|rent|stay){_END}",
        rf"\bwhere\b.*\bmy (?:home|house|flat)(?: is)?{_END}|\bwhere (?:my )?home is\b|\bwhere is my bed\b",
        rf"\b(?:which|what) {_PLACE} (?:do|did|am|is|are) (?:i|we|my home)\b"
        rf"(?=.*\b(?:live|living|home|from|in)\b)(?!.*\b{_GO})",
        rf"\b(?:which|what) {_PLACE}\b.*\b(?:my (?:home|house|flat)|live|build our)\b",
        r"\bmy (?:home ?town|town|city|place of residence|residence)\b(?! (?:hall|council|map|trip))",
        r"\bmy (?:home|house|flat) is in (?:which|what)\b|\bfor (?:city|town)\b|\bvisit me\b",
        rf"\b(?:i|we) (?:call home|live in){_END}|\b(?:go|come|goes) home{_END}",
    ),
    "trip": (
        rf"^(?!.*{_WENT}).*\bwhere\b.*\b(?:i|we|me)\b.*\b{_GO}\b",
        rf"\bwhere\b.*\bmy {_AWAY}\b|\bmy {_AWAY}\b.*\b(?:where|place){_END}",
        rf"\bwhere\b.*\b{_RIDE} .*\b(?:me|go|goes|stop|land|arrive)\b",
        r"\bmy (?:destination|travel (?:plans?|goal)|holiday (?:plans?|place))\b",
        rf"\b(?:what|which) {_PLACE}\b.*\b(?:{_GO}|book\w*|see|choose|plan|{_AWAY})\b",
        rf"\bplace of my {_AWAY}\b|\bto (?:which|what) {_PLACE}\b",
        r"\b(?:travelling|going|flying|off|leave|leaving)\b.*"
        rf"\b(?:where|to which {_PLACE}|what (?:place|town)){_END}",
        rf"\b{_PLACE} am i looking forward\b|\bgoing to \.\.\.|\btravel to (?:\.\.\.|_)|\bnext stop\b",
        rf"\b(?:my|our) {_AWAY}{_END}",
    ),
}
_TOLD = {
    "name": (
        rf"(?i:\b(?:my|user|the) {_NAMES}(?: is|['’]s| was|,| =|:)|\bnamed? me\b)",
        rf"\b(?i:call(?:s|ed)? me|calls? (?:you|her|him) and me)(?: the)? {_X}",
        r"(?i:\bknow[sn]?(?: me)? (?:as|by)\b|\bi (?:go by|answer to|sign(?:ed)?|use the name))",
        r"(?i:\bi(?:['’]m|['’]ve been| am| was| have been) (?:called|named|known|baptized)\b)",
        rf"(?i:\bthe name (?:is|i use)\b|\bis (?:my {_NAMES}|who i am|what (?:i['’]?m|i am|they|people)))",
        r"(?i:^name:)",
        r"(?i:\bthat(?:['’]s| is| was) (?:me|my name)\b|\b(?:prefer|like|wanted|chose|got) the name\b)",
        r"(?i:\baddressed as\b)",
        r"(?i:\b(?:talking|speaking|chatting) (?:to|with)\b.*\b(?:named|called)\b|\bwho i am:)",
        r"(?i:\bas my name\b|\bi am one\b|\bwhen you talk to me\b|\bchang\w+ my name\b)",
        r"\b[Yy]our (?:user|friend) [A-Z]",
        r"\b(?i:i['’]?m|i am|call me|ich bin|ich heiße|je suis|je m['’]appelle|soy|me llamo|mi chiamo"
        rf"|меня зовут) {_X}",
        r"我叫",
        rf"\b(?i:this is|it is|it['’]s|talking to|speaking (?:to|with)|chatting with) {_X}"
        r"(?=\W*$|[,.!]| (?:here|and|again|speaking|writing|typing))",
        rf"\b{_X},? (?:here|speaking|writing|typing)\b",
    ),
    "job": (
        r"(?i:\b(?:work|works|worked|working|employed|hired?|trained|busy|serve|spend|earn|money|jobs?|shift|day)"
        r"\b[^.?!]*\bas an? \w+|\bwork as \w+)",
        rf"(?i:\bas an? (?:\w+ )?\w+{_DOER}\b|\bmy {_JOB} (?:is|was|:)|\bis my {_JOB}\b)",
        r"(?i:\bby (?:profession|trade|training)\b|\bfor a living\b|\bjob title\b|\bfull-time\b)",
        r"(?i:\b(?:i['’]?m|i am|i was|i become|being|becoming|became|to be|talking to|speaks)"
        rf" (?:(?:an?|the) (?:\w+ ){{0,2}})?{_NO_JOB}\w{{2,}}{_DOER}\b)",
        rf"(?i:\b\w{{2,}}{_DOER}\b(?: is what i do|[^.?!]* i do (?:just )?that))",
        rf"(?i:\b\w{{2,}}{_DOER}\b[^.?!]*\bfor (?:occupation|profession|job)\b)",
        rf"(?i:\b(?:my calling|^me|{_JOB})[:?] (?:it is )?\w+|\bmy {_JOB}\b[^?!]*\bi wrote\b)",
    ),
    "home": (
        r"\b(?i:live[sd]?|living|reside|settled?|based|dwell|stay(?:ed)?|moved?|home|house|flat|apartment|room"
        r"|address|garden|rent|landlord|neighbours?|street|life|letters|raised|local|sleep|wake)\b"
        rf"[^.?!]*\b(?i:in|to|at|from) {_X}",
        rf"\b(?i:home|town|city|address|place)\b[^.?!]*\b(?i:is|in|called)[: ]+{_X}",
        rf"\b(?i:i['’]?m|i am|i come|greetings|hello|resident|citizen|native|local) (?i:from|of) {_X}",
        rf"^(?i:town|city|home|residence): |\b{_X}\b.* (?i:where i live|my (?:home|town|city)|i call home)",
        rf"\b{_X}\b.* (?i:i live there|i still live|to live)\b",
    ),
    "trip": (
        rf"\b(?i:{_AWAY}|fly|flying|book(?:ed)?|leav(?:e|ing)|off|going|go|head(?:ed|ing)|visit\w*|train|bus|plane"
        r"|ship|destination|next stop|see|picked|goodbye|suitcase|bags?|pack\w*|way|sends? me|travel\w*)\b"
        rf"[^.?!]*\b(?i:to|for|in|is|be|visit(?:ing)?|see|picked)[: ]+{_X}",
        rf"\b{_X} (?i:for me|it will be|is my (?:goal|destination))\b",
        rf"\b(?i:up next|chose|drive to|drive):? {_X}",
        rf"\b(?i:next|this|tomorrow|soon|in (?:summer|winter|spring|autumn))\b[^?!]*\b(?i:to|in|at|see) {_X}",
        rf"\b{_X}\b.* (?i:(?:going|travel|be) there|where my trip goes|i travel|calling us)\b",
    ),
}
TOLD = {kind: re.compile("|".join(ways)) for kind, ways in _TOLD.items()}
"""By each of the four, how it is told."""
_WORDS = {
    "name": "name named names call called calls known knows know sign signed answer prefer talk talking"
    " speaking writing typing chatting addressed user friend who here",
    "job": "work works worked working job jobs employed hired hire trained training train busy serve spend"
    " earn shift day profession occupation trade career position post living title full calling do speaks",
    "home": "live lives lived living reside settled based dwell stay stayed moved move home house flat"
    " apartment room address garden rent landlord neighbour neighbours street life letters raised local sleep"
    " wake town city residence place from resident citizen native",
    "trip": "trip travel travelling holiday holidays vacation journey fly flying flight flights ticket"
    " tickets book booked leave leaving off going go headed heading visit visiting train bus plane ship"
    " destination next see picked goodbye suitcase bag bags pack packing packed way send sends tour drive"
    " chose tomorrow soon summer winter spring autumn this there goal me",
}
WORDS = {kind: frozenset(words.split()) for kind, words in _WORDS.items()}
"""One of these stands in what tells it, but for what `BEGINS` finds: so few pieces have to be looked at."""
BEGINS = {
    "name": re.compile(
        r"\b(?i:i['’]?m|i am|call me|this is|it is|it['’]s|ich bin|ich heiße|je suis|je m['’]appelle|soy"
        r"|me llamo|mi chiamo|меня зовут|i go by|baptized) [A-ZÀ-ÞА-ЯЁ]\w|我叫|\bthat(?:['’]?s| is) me\b"
    ),
    "job": re.compile(r"\b(?i:i['’]?m|i am|i was|being|becoming|became|to be|as) (?:an?|the) \w|^(?i:me):"),
}
"""How what tells it may begin."""
_ASKED_FOR = {kind: re.compile("|".join(ways), re.IGNORECASE) for kind, ways in _ASKED.items()}


_ELSE = re.compile(
    r"^\W*(?:and |so |but )?(?:when|why|who\b(?! (?:am|is|are|you|i))|what time|do|does"
    r"|how (?:much|many|long|far|often|old|do i (?!earn|make)))\b",
    re.IGNORECASE,
)
"""Asks for something else of it: "When is my flight?"."""
_OTHERS = re.compile(
    r"\b(?:he|she|they|(?:my|our|his|her|their) (?!parents|friends|family|name|home|flat|house|job|work|trade"
    r"|profession|town|city)\w+) (?:\w+ )?(?:lives?|works?|worked|is|was|goes|travels?|flies|flew)\b",
    re.IGNORECASE,
)
"""Tells it of another: "My brother works as a lawyer."."""


@lru_cache(64)
def asked_for(question: str) -> str:
    """Which of the four a question asks for; empty: none of them."""
    found = next((kind for kind, asking in _ASKED_FOR.items() if asking.search(question)), "")
    return "" if found != "name" and _ELSE.match(question) else found


def tells(kind: str, text: str) -> bool:
    """Whether a text tells one of the four of the person who says it."""
    return TOLD[kind].search(text) is not None and (kind == "name" or _OTHERS.search(text) is None)
