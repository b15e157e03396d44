"""The colours: slate, blue for the model, amber for what is heavy; all of it survives colour blindness.

Three themes of our own, and those of Textual; each gets the colours below that no theme of Textual names.
"""

from textual.color import Color
from textual.theme import Theme

H2O_DARK = Theme(
    name="h2o-dark",
    primary="#7fb3d5",
    secondary="#8fa3b8",
    accent="#e0a84e",
    warning="#e0a84e",
    error="#e07a6a",
    success="#86b89a",
    foreground="#d5dbe3",
    background="#12161c",
    surface="#12161c",
    panel="#1a2029",
    variables={"border": "#3b4654", "border-blurred": "#3b4654"},
)
H2O_LIGHT = Theme(
    name="h2o-light",
    dark=False,
    primary="#1f6391",
    secondary="#56677a",
    accent="#8a5a00",
    warning="#8a5a00",
    error="#a8322a",
    success="#2c6e49",
    foreground="#1d2329",
    background="#fbfbf9",
    surface="#fbfbf9",
    panel="#eef2f5",
    variables={"border": "#b4bdc6", "border-blurred": "#b4bdc6"},
)
H2O_ANSI = Theme(
    name="h2o-ansi",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_yellow",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    variables={
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border": "ansi_bright_black",
        "border-blurred": "ansi_bright_black",
        "block-cursor-background": "ansi_yellow",
        "block-cursor-foreground": "ansi_black",
        "footer-key-foreground": "ansi_yellow",
    },
)
"""The sixteen colours of the terminal itself, on its own background."""
OWN = (H2O_DARK, H2O_LIGHT, H2O_ANSI)

MUTED = "$muted"
"""Secondary text; in a style string, where `$text-muted` would come out white."""
KIND_STYLES = {"S": "$secondary", "H": "$accent", "R": "$primary", "·": MUTED}
"""By the kind of a token, see `glyphs.NAMES`."""

Ramp = tuple[tuple[str, ...], tuple[str, ...]]
"""Words and backgrounds of the levels 1 to 8."""
HEAT_DARK: Ramp = (
    ("#d5dbe3", "#d5dbe3", "#e6eaef", "#ffffff", "#ffffff", "#12161c", "#12161c", "#12161c"),
    ("#1f2226", "#332d26", "#4a3c2a", "#664f2e", "#876733", "#a87f3a", "#c59443", "#e0a84e"),
)
"""One hue from dark to bright amber: brightness gives the order, for eyes that see no colours."""
HEAT_LIGHT: Ramp = (
    ("#1d2329", "#1d2329", "#1d2329", "#1d2329", "#1d2329", "#12161c", "#ffffff", "#ffffff"),
    ("#f6efdf", "#f1e1bd", "#e9cd94", "#deb569", "#cf9b4a", "#bb8538", "#8f5b1c", "#6b4110"),
)
HEAT_ANSI_DARK: Ramp = (
    ("ansi_default",) * 2 + ("ansi_yellow",) * 2 + ("ansi_black",) * 4,
    ("ansi_default",) * 4 + ("ansi_yellow",) * 2 + ("ansi_bright_yellow",) * 2,
)
"""Four steps: a terminal of sixteen colours has no more of one hue."""
HEAT_ANSI_LIGHT: Ramp = (
    ("ansi_default",) * 2 + ("ansi_blue",) * 2 + ("ansi_black",) * 2 + ("ansi_bright_white",) * 2,
    ("ansi_default",) * 4 + ("ansi_cyan",) * 2 + ("ansi_blue",) * 2,
)
"""Yellow cannot be read on a light background."""


def ramp(theme: Theme) -> list[tuple[str, str]]:
    """(word, background) of each level, to be read on a theme's background."""
    dark, light = (HEAT_ANSI_DARK, HEAT_ANSI_LIGHT) if theme.ansi else (HEAT_DARK, HEAT_LIGHT)
    return list(zip(*(dark if theme.dark else light), strict=True))


def variables(theme: Theme) -> dict[str, str]:
    """Colours that are ours alone: `$muted`, `$gone`, `$found`, `$heat-1` to 8, and the grounds of these."""
    if theme.ansi:
        own = {"muted": "ansi_bright_black", "gone": "ansi_bright_black"}
        own |= {"found": "ansi_black", "found-ground": "ansi_cyan"}
    else:
        colors = theme.to_color_system().generate()
        words = Color.parse(colors["foreground"])
        muted, gone = (0.6, 0.45) if theme.dark else (0.75, 0.6)
        own = {"muted": words.with_alpha(muted).hex, "gone": words.with_alpha(gone).hex}
        own |= {"found": colors["background"], "found-ground": colors["foreground"]}
    for level, (word, ground) in enumerate(ramp(theme), 1):
        own |= {f"heat-{level}": word, f"heat-ground-{level}": ground}
    return own
