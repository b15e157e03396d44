"""No sockets in a process that a test starts: Python imports this first, where the folder is on its path."""

import network_guard

network_guard.watch()
