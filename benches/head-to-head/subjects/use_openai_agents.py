"""OpenAI Agents SDK: `Agent` with `FunctionTool`, on chat completions."""

import json

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from protocol import MAX_TOKENS, MODEL, URL, serve

set_tracing_disabled(True)


def noting(tool, calls):
    async def note(_, arguments):
        calls.append({"name": tool["name"], "arguments": json.loads(arguments)})
        return "done"

    return FunctionTool(
        tool["name"], tool["description"], tool["parameters"], note, strict_json_schema=False
    )


def answer(case, calls):
    agent = Agent(
        name="agent",
        model=OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=URL, api_key="none")),
        model_settings=ModelSettings(temperature=0, max_tokens=MAX_TOKENS),
        tools=[noting(tool, calls) for tool in case["tools"]],
        tool_use_behavior="stop_on_first_tool",
    )
    result = Runner.run_sync(agent, case["messages"][-1]["content"])
    usage = result.context_wrapper.usage
    return result.final_output, usage.input_tokens, usage.output_tokens


serve(answer)
