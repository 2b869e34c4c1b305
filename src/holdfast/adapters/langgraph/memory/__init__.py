"""Long-term memory of LangGraph agents: each namespace is a session."""
