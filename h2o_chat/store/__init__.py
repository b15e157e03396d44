"""Conversations on disk. `store.py` is what to read first."""

from h2o_chat.store.data_folder import saved_caches, saved_caches_bytes
from h2o_chat.store.facts import Fact, SaidElsewhere
from h2o_chat.store.records import Conversation, Hit, Pieces, StoredMessage, Summary, clean, title_of
from h2o_chat.store.store import DATABASE, Store, conversation_ids, models_used
from h2o_chat.store.writer import Writer

__all__ = ["DATABASE", "Conversation", "Fact", "Hit", "Pieces", "SaidElsewhere", "Store", "StoredMessage"]
__all__ += ["Summary", "Writer", "clean", "conversation_ids", "models_used"]
__all__ += ["saved_caches", "saved_caches_bytes", "title_of"]
