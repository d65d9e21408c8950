"""smolagents: `ToolCallingAgent`, step by step."""

from protocol import MAX_TOKENS, MODEL, URL, serve
from smolagents import ActionStep, FinalAnswerStep, OpenAIServerModel, Tool, ToolCallingAgent

model = OpenAIServerModel(MODEL, api_base=URL, api_key="none", temperature=0, max_tokens=MAX_TOKENS)


def noting(tool, calls):
    needed = tool["parameters"].get("required", [])
    properties = tool["parameters"]["properties"].items()

    class Noting(Tool):
        skip_forward_signature_validation = True
        name, description, output_type = tool["name"], tool["description"], "string"
        inputs = {
            key: {"description": "", "nullable": key not in needed, **schema}
            for key, schema in properties
        }

        def forward(self, **arguments):
            calls.append({"name": tool["name"], "arguments": arguments})
            return "done"

    return Noting()


def answer(case, calls):
    tools = [noting(tool, calls) for tool in case["tools"]]
    agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0, max_steps=10)
    text, tokens = None, [0, 0]
    for step in agent.run(case["messages"][-1]["content"], stream=True):
        if isinstance(step, FinalAnswerStep):
            text = step.output
        elif isinstance(step, ActionStep):
            usage = step.token_usage
            if usage:
                tokens = [tokens[0] + usage.input_tokens, tokens[1] + usage.output_tokens]
            if calls:
                break
    return text, *tokens


serve(answer)
