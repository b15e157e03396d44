"""Draws a change at the cost of the change: a line of the answer, not the whole screen."""

from collections.abc import Iterable

from textual._compositor import Compositor
from textual.geometry import Region
from textual.strip import Strip


class PartialCompositor(Compositor):
    """Asks only the widgets that are drawn, and only for the rows that are.

    Textual's own (8.2.8) asks every visible widget for all its rows, though one is drawn: 2 ms of a frame,
    taken from the engine's thread, which shares the interpreter.
    """

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        crop = crop or self.size.region
        rows = Region(0, crop.y, self.size.width, crop.height)
        for widget, (region, clip) in self.visible_widgets.items():
            if region.overlaps(crop) and (shown := region.intersection(clip).intersection(rows)):
                yield region, clip.intersection(rows), widget.render_lines(shown.translate(-region.offset))
