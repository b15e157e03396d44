"""Widgets and colours that the other rooms of the screen use."""
