"""Many replicas of the server on several machines, and batches over them, by Ray (the extra `cluster`)."""
