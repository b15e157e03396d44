"""A policy by its name: those a person would choose, and those to compare with."""

from h2o_chat.base.config import POLICY_NAMES
from h2o_chat.base.errors import UsageError
from h2o_chat.policies.policies import POLICIES, Policy
from h2o_chat.policies.references import REFERENCES


def named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        UsageError: there is none.
    """
    known = POLICIES | REFERENCES
    if name not in known:
        raise UsageError(f"Policy {name!r} is not known.", f"One of: {', '.join(POLICY_NAMES)}.")
    return known[name]
