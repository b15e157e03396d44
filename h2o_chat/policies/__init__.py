"""Which slots go: pure functions of what is known of them, and their numbers. It knows no cache."""
