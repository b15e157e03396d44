"""The first words: what was opened and what its memory is."""

from h2o_chat.events.events import Session


def greeting(session: Session) -> str:
    """Two or three sentences about a conversation that has not begun."""
    caches = session.layers * session.kv_heads
    each = f"Each of its {caches} caches ({session.layers} layers × {session.kv_heads} KV heads)"
    if session.budget is None:
        memory = f"{each} keeps everything, up to {session.window:,} tokens."
    else:
        memory = f"{each} keeps {session.budget} tokens; what gets little attention is forgotten."
    match session.template:
        case "model":
            template = ""
        case "plain":
            template = " It has no chat template: it continues what you write."
        case name:
            template = f" It is spoken to by the {name} template."
    return f"{session.model} is ready. {memory}{template}"
