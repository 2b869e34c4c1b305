"""Who takes part in the benchmarks of a conversation and of its history: one module each.

    workload.py          the conversation, what a contestant does, and how it is timed
    report.py            what was seen, as lines and as a picture
    holdfast_session.py  ourselves, on any state store
    langgraph_saver.py   SqliteSaver and PostgresSaver, their `put` alone
    langgraph_graph.py   a whole graph on SqliteSaver, with and without DeltaChannel
    swarmstate_saver.py  the saver of swarmstate on its disk store
    strands_files.py     the snapshot manager of Strands on files, in a process of its own
    orjson_files.py      the whole state as one JSON file a turn
    openai_session.py    the SQLiteSession of the OpenAI Agents SDK, which has no snapshots
    plain_table.py       a table of JSON documents with an index

Each peer is called as its own documentation says, with the durability that it has by default, or
that of SQLite's ``synchronous=FULL`` where it takes a connection.
"""
