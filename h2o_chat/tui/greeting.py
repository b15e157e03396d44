"""The first words: what was opened and what its memory is."""

from h2o_chat.events import Session


def greeting(session: Session) -> str:
    """Two or three sentences about a conversation that has not begun."""
    caches = session.layers * session.kv_heads
    memory = (
        f"Each of its {caches} caches keeps everything, up to {session.window:,} tokens."
        if session.budget is None
        else f"Each of its {caches} caches keeps {session.budget} tokens (policy {session.policy});"
        " what gets little attention is forgotten, and this screen shows what is left."
    )
    plain = " It has no chat template: it continues what you write."
    return f"{session.model} is ready. {memory}{plain if session.template == 'plain' else ''}"
