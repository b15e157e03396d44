"""The thought of a model before its answer: a block that is folded away."""

OPEN, CLOSE = "<think>", "</think>"


def divide(text: str, *, begun: bool = False) -> tuple[str | None, str]:
    """(the thought, None where there is none; the answer behind it).

    Args:
        begun: the prompt has opened the block already.
    """
    head = text.lstrip()
    if not begun and not head.startswith(OPEN):
        # Perhaps it is just being opened; nothing is shown of that.
        return (None, text) if not head or not OPEN.startswith(head) else (None, "")
    inside = head.removeprefix(OPEN)
    thought, closed, answer = inside.partition(CLOSE)
    return thought.strip(), answer.lstrip() if closed else ""
