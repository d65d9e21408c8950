"""LangGraph: `create_agent` of LangChain, whose loop is a graph of LangGraph."""

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from protocol import MAX_TOKENS, MODEL, URL, serve

model = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", temperature=0, max_tokens=MAX_TOKENS)


def noting(tool, calls):
    def note(**arguments):
        calls.append({"name": tool["name"], "arguments": arguments})
        return "done"

    return StructuredTool(
        name=tool["name"],
        description=tool["description"],
        args_schema=tool["parameters"],
        func=note,
        return_direct=True,
    )


def answer(case, calls):
    agent = create_agent(model, [noting(tool, calls) for tool in case["tools"]])
    messages = agent.invoke({"messages": case["messages"]})["messages"]
    usage = [getattr(message, "usage_metadata", None) for message in messages]
    usage = [one for one in usage if one]
    tokens = [sum(one[kind] for one in usage) for kind in ("input_tokens", "output_tokens")]
    return messages[-1].content, *tokens


serve(answer)
