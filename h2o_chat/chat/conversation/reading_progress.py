"""Progress of reading a prompt, in the words of the screen, `run` and the plain chat."""

from h2o_chat.events.events import ReadSoFar


def words(so_far: ReadSoFar) -> str:
    """`18,432 of 48,687 · 38% · about 28 s · 1,632 tok/s`."""
    share = f"{so_far.tokens:,} of {so_far.of:,} · {so_far.share:.0%}"
    if so_far.ms <= 0 or not so_far.tokens:
        return share
    pace = 1000 * so_far.tokens / so_far.ms
    left_s = (so_far.of - so_far.tokens) / pace
    left = f" · about {about(left_s)}" if so_far.tokens < so_far.of else ""
    return f"{share}{left} · {pace:,.0f} tok/s"


def about(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
