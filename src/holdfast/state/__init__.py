"""State in memory, no I/O: the trie, the store over it, snapshots, their differences, merging."""
