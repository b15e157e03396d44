"""The stages of loading before the first question, each with its bar."""

from textual.content import Content

from h2o_chat.base.glyphs import bar
from h2o_chat.base.safe import fit, safe_text
from h2o_chat.tui.pane.jobs import Stage
from h2o_chat.tui.transcript.turn import TurnView
from h2o_chat.tui.widgets.theme import MUTED

BAR_CELLS = 24
NAME_CELLS = 12


class Loading(TurnView):
    """A list of stages that grows; a stage is over when the next one begins."""

    def __init__(self, model: str) -> None:
        super().__init__("loading", "", Content())
        self._model = safe_text(model)
        self._stages: dict[str, tuple[str, float | None]] = {}
        """(details, share done) by name."""
        self._failed = False
        self._draw()

    def stage(self, stage: Stage) -> None:
        """Take in the progress of a stage; its name ends at a colon."""
        name, _, details = stage.name.partition(":")
        self._stages[name] = details, stage.share
        self._draw()

    @property
    def stops(self) -> bool:
        """Whether the present stage can be stopped."""
        return next(reversed(self._stages), None) == "download" and not self._failed

    def fail(self) -> None:
        """Mark the present stage as failed."""
        self._failed = True
        self._draw()

    def _draw(self) -> None:
        lines = [Content.assemble("opening ", (self._model, "bold"))]
        newest = next(reversed(self._stages), None)
        for name, (details, share) in self._stages.items():
            mark = "✓" if name != newest else "✗" if self._failed else "·"
            lines.append(_line(mark, name, share, safe_text(details)))
        self.show(Content("\n").join(lines))


def _line(mark: str, name: str, share: float | None, details: str) -> Content:
    shown = f"{mark} {fit(safe_text(name), NAME_CELLS)}"
    if mark != "·":
        return Content.styled(shown, MUTED)
    if share is None:
        return Content(f"{shown}…")
    return Content.assemble(shown, (bar(share, BAR_CELLS), "$primary"), f" {share:4.0%}{details}")
