"""Kill runs of agent frameworks in the middle, and resume them in a new process.

Each module beside this one is the scenario of a framework: a scripted agent that stores its state
in Holdfast, and a check of how it ended.
"""
