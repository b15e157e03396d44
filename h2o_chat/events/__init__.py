"""The stream that the screen, --json and recordings read: events, checks, recorder. No torch."""
