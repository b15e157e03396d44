"""Numbers drawn with characters: bars, sparklines, bytes, shares."""

from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, cells: int) -> str:
    """A bar of `cells` columns, exact to an eighth of one; more than nothing always shows."""
    eighths = round(min(max(share, 0.0), 1.0) * cells * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(cells)


def gauge(hold: float, caches: int) -> str:
    """How many heads hold a message, a mean over its tokens: `▕██▋     ▏ 4 of 12 heads`."""
    return f"▕{bar(hold, 8)}▏ {heads(hold, caches):>{len(heads(1, caches))}}"


def spark(values: Sequence[float]) -> str:
    """One column per value, as a share of the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return LEVELS[0] * len(values)
    return "".join(LEVELS[min(int(max(value, 0.0) / top * 8), 7)] for value in values)


def height(hold: float) -> str:
    """How many heads hold it, as an eighth block; more than none always shows."""
    return LEVELS[min(max(round(hold * 8) - 1, 0), 7)] if hold > 0 else " "


def percent(share: float) -> str:
    """A share with the digits that matter: `12%`, `3.4%`, `0.03%`, `<0.01%`, `0%`."""
    if share < 1e-6:  # sums of probabilities are not exact
        return "0%"
    if share < 0.0001:
        return "<0.01%"
    decimals = 2 if share < 0.01 else 1 if share < 0.1 else 0
    return f"{share:.{decimals}%}"


def size(count: int) -> str:
    """Bytes in binary units, three digits: `256 MiB`, `1.5 KiB`, `96 B`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def short(count: int) -> str:
    """A count in at most four columns: `947`, `1.9k`, `20k`, `1.2M`."""
    value = float(count)
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}G"


def number(value: float) -> str:
    """Any number in at most seven columns: `14.2`, `0.0082`, `1.3e-05`."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:.1e}"


MARKS = {"H": "█", "R": "▓", "S": "░", "·": "·"}  # a block for each kind of held token; see `NAMES`
NAMES = {"H": "important", "R": "newest", "S": "pinned", "·": "forgotten"}


def heads(hold: float, caches: int) -> str:
    """How many heads hold it, of how many: `3 of 12 heads`."""
    holders = round(hold * caches)
    return f"{'<1' if hold > 0 and not holders else f'{holders:,}'} of {caches:,} heads"


def held_bar(hold: float, mark: str, cells: int) -> str:
    """The heads that hold it, the others as dots; full only where all do, empty only where none does."""
    full = 0 if hold <= 0 else cells if hold >= 1 else min(max(round(hold * cells), 1), cells - 1)
    return mark * full + "·" * (cells - full)
