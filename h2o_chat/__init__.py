"""h2o-chat: a local model whose memory never grows, and which shows what it still remembers.

`from h2o_chat import H2OCache` gives the cache to any transformers script, `Policy` a policy of one's own to
it; both are lazy, so that `import h2o_chat` costs no import of torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from h2o_chat.policies.policies import Policy
    from h2o_chat.transformers_cache.cache import H2OCache

__version__ = "0.2.0"
__all__ = ["H2OCache", "Policy", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "H2OCache":
        import h2o_chat.transformers_cache.registered  # noqa: F401  (registers attn_implementation="h2o")
        from h2o_chat.transformers_cache.cache import H2OCache

        return H2OCache
    if name == "Policy":
        from h2o_chat.policies.policies import Policy

        return Policy
    raise AttributeError(f"module 'h2o_chat' has no attribute {name!r}")
