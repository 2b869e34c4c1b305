"""State in memory, without I/O: store, snapshots, diffs and merges over a persistent trie."""
