"""How a message becomes tokens: chat templates, and the process that renders them."""
