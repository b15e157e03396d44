"""Widgets and colours that the other folders of `tui/` use."""
