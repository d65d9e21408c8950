"""Measures the growth of a conversation in the SQLite checkpointer of LangGraph, for comparison
with `cargo bench --bench memory`.

    python3 -m venv peers && peers/bin/pip install langgraph langgraph-checkpoint-sqlite
    peers/bin/python benches/peers/langgraph_growth.py
"""

import os
import sqlite3
import tempfile

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph


def answer(state):
    town = len(state["messages"]) // 2
    return {"messages": [AIMessage(f"In town {town} it is mild, with a light wind from the west.")]}


def size(turns):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoints.db")
        with SqliteSaver.from_conn_string(path) as saver:
            graph = StateGraph(MessagesState)
            graph.add_node("answer", answer)
            graph.add_edge(START, "answer")
            graph.add_edge("answer", END)
            app = graph.compile(checkpointer=saver)
            config = {"configurable": {"thread_id": "bench"}}
            for turn in range(turns):
                message = HumanMessage(f"What is the weather like in town {turn}?")
                app.invoke({"messages": [message]}, config)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return os.path.getsize(path)


for turns in (25, 50, 100):
    bytes = size(turns)
    print(f"{turns:>6} turns {bytes:>9} bytes {bytes // turns:>7} a turn")
