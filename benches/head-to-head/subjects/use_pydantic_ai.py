"""Pydantic AI: `Agent` with `Tool.from_schema`, run node by node."""

import asyncio

from protocol import MAX_TOKENS, MODEL, URL, serve
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))


def noting(tool, calls):
    def note(**arguments):
        calls.append({"name": tool["name"], "arguments": arguments})
        return "done"

    return Tool.from_schema(
        note,
        name=tool["name"],
        description=tool["description"],
        json_schema=tool["parameters"],
    )


async def run(case, calls):
    agent = Agent(model, tools=[noting(tool, calls) for tool in case["tools"]])
    settings = {"temperature": 0, "max_tokens": MAX_TOKENS}
    async with agent.iter(case["messages"][-1]["content"], model_settings=settings) as run:
        async for _ in run:
            if calls and not Agent.is_call_tools_node(run.next_node):
                break
        usage = run.usage
        return run.result and run.result.output, usage.input_tokens, usage.output_tokens


serve(lambda case, calls: asyncio.run(run(case, calls)))
