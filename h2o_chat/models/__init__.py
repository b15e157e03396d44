"""From a name to a folder to a loaded model: resolve, aliases, hub, does it fit, load."""
