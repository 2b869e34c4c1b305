"""Holdfast under the frameworks that agents are built with: one module each, imported when used.

    openai_agents  HoldfastSession, a session of the OpenAI Agents SDK
    strands        HoldfastStorage, a storage of Strands, and HoldfastSessionManager
    langgraph      HoldfastSaver, a checkpointer of LangGraph
    requirement    the package that a module needs, or what to install

Each needs the extra of its name, and nothing else in Holdfast needs any of them.
"""
