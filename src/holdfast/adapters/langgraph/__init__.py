"""LangGraph's threads as sessions: ``HoldfastSaver``. Needs the extra ``langgraph``."""

from holdfast.adapters.langgraph.saver import HoldfastSaver

__all__ = ["HoldfastSaver"]
