"""One calm palette: slate, blue for the model, amber for what is heavy; both survive colour blindness."""

from textual.theme import Theme

H2O_DARK = Theme(
    name="h2o-dark",
    dark=True,
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

MUTED = "$foreground 60%"
"""What is said beside the matter; in a style string, where `$text-muted` would come out white."""
