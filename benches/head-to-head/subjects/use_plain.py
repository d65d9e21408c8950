"""Chat completions with `tools`, and nothing between them and the program."""

import json
import urllib.request

from protocol import MAX_TOKENS, MODEL, URL, serve


def answer(case, calls):
    tools = [{"type": "function", "function": tool} for tool in case["tools"]]
    body = {
        "model": MODEL,
        "messages": case["messages"],
        "tools": tools,
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    request = urllib.request.Request(
        URL + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        reply = json.load(response)
    message, usage = reply["choices"][0]["message"], reply.get("usage") or {}
    for call in message.get("tool_calls") or []:
        function = call["function"]
        calls.append({"name": function["name"], "arguments": json.loads(function["arguments"])})
    return message.get("content"), usage.get("prompt_tokens"), usage.get("completion_tokens")


serve(answer)
