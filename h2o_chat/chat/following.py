"""What a short question means after another: "And how old is he?" after "What is my brother called?".

English alone. What is meant must be the asking person's own: the brother of "my brother".
"""

import re

from h2o_chat.chat.personal import own_things, wanted

_HE = re.compile(r"\b(?:he|she|they|him|them)\b", re.I)
_HIS = re.compile(r"\b(?:his|her|their)\b", re.I)
_IT = re.compile(r"\b(?:it|its)\b", re.I)
_AND_MY = re.compile(r"(?:and|what about|how about|and what about)\s+(?:my|our)\s+(\w+(?: \w+)?)\s*\?", re.I)


def followed(question: str, before: str) -> str:
    """The question with what it leaves out, taken from the one before; the same where it leaves nothing out.

    Args:
        before: the question before, itself with what it left out.
    """
    things = own_things(before)
    if not things or wanted(before) is None:
        return question
    if other := _AND_MY.fullmatch(question.strip()):
        return re.sub(rf"\b{re.escape(things)}\b", other[1], before, count=1, flags=re.I)
    if wanted(question) is not None:
        return question
    # "What time is it?" means no thing: "it" does where the question goes on with the one before.
    goes_on = re.match(r"and\b", question.strip(), re.I) is not None
    for pattern, what in ((_HE, f"my {things}"), (_HIS, f"my {things}'s"), (_IT, f"my {things}")):
        if (pattern is not _IT or goes_on) and pattern.search(question):
            whole = pattern.sub(what, question, count=1)
            return whole if wanted(whole) is not None else question  # "What should I feed him?" is advice
    return question
