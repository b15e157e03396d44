"""HTTP over a batch: what OpenAI's clients and those of llama-server speak. `server.py` puts it together."""
