"""h2o-chat: a local model whose memory never grows, and which shows what it still remembers.

`from h2o_chat import H2OCache` gives the cache to any transformers script; the attribute is lazy, so that
`import h2o_chat` costs no import of torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from h2o_chat.cache.cache import H2OCache

__version__ = "0.2.0"
__all__ = ["H2OCache", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "H2OCache":
        import h2o_chat.cache.registered  # noqa: F401  (registers attn_implementation="h2o")
        from h2o_chat.cache.cache import H2OCache

        return H2OCache
    raise AttributeError(f"module 'h2o_chat' has no attribute {name!r}")
