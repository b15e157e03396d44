"""The first words: what was opened and what its memory is."""

from h2o_chat.events import Session


def greeting(session: Session) -> str:
    """Two or three sentences about a conversation that has not begun."""
    caches = session.layers * session.kv_heads
    each = f"Each of its {caches} caches ({session.layers} layers × {session.kv_heads} KV heads)"
    if session.budget is None:
        memory = f"{each} keeps everything, up to {session.window:,} tokens."
    else:
        memory = f"{each} keeps {session.budget} tokens; what gets little attention is forgotten."
    plain = " It has no chat template: it continues what you write."
    return f"{session.model} is ready. {memory}{plain if session.template == 'plain' else ''}"
