"""`h2o-chat lab eval ...`: what forgetting costs on a model."""
