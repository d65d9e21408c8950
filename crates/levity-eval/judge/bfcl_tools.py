"""Runs the tools of one case of the Berkeley Function Calling Leaderboard (package `bfcl-eval`).

usage: bfcl_tools.py [FOLDER]    FOLDER has the package `bfcl_eval`, if it is not installed

JSON lines on standard input and output. The first one, {"environment": {..}, "tools": [names]}, is
answered by {"ready": true}. Each one after it, {"name": "..", "arguments": {..}}, is answered by
{"result": ".."}, and by {"result": "..", "failed": true} where the tool raised an error.
{"error": ".."} means that nothing can run.
"""

import copy
import importlib
import inspect
import json
import sys

# The maximum length of a result in characters, and the maximum memory of this process in bytes.
MAX_RESULT = 1_000_000
MAX_MEMORY = 2 << 30

answers = sys.stdout
sys.stdout = sys.stderr  # Output of a tool is not an answer.


def answer(value):
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def instances(environment):
    from bfcl_eval.constants.executable_backend_config import (
        CLASS_FILE_PATH_MAPPING,
        STATELESS_CLASSES,
    )

    for name in environment["classes"]:
        if name.startswith(("Memory", "WebSearch")) or name not in CLASS_FILE_PATH_MAPPING:
            raise ValueError(f"no class `{name}` that is supported here")
        instance = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in STATELESS_CLASSES:
            config = copy.deepcopy(environment["config"].get(name, {}))
            instance._load_scenario(config, long_context=environment.get("long_context", False))
        yield instance


def methods(environment, offered):
    """Returns the methods of the offered tools by name. A later class wins, as in the package."""
    found = {}
    for instance in instances(environment):
        for name, method in inspect.getmembers(instance, predicate=inspect.ismethod):
            if name in offered and not name.startswith("_"):
                found[name] = method
    missing = sorted(set(offered) - set(found))
    if missing:
        raise ValueError(f"no class has the tools {', '.join(missing)}")
    return found


def run(method, arguments):
    """Returns the result as text, in the format of the package's own executor."""
    result = method(**arguments)
    if isinstance(result, dict):
        try:
            result = json.dumps(result)
        except (TypeError, ValueError):
            pass
    result = str(result)
    if len(result) <= MAX_RESULT:
        return result
    return f"{result[:MAX_RESULT]} [cut: {len(result)} characters]"


def serve():
    first = json.loads(sys.stdin.readline())
    try:
        tools = methods(first["environment"], first["tools"])
    except Exception as error:
        return answer({"error": f"{type(error).__name__}: {error}"})
    answer({"ready": True})
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer({"result": run(tools[call["name"]], call["arguments"])})
        except Exception as error:
            answer({"result": f"the call failed: {error}"[:MAX_RESULT], "failed": True})


try:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
except (ImportError, OSError, ValueError):
    pass  # Not available on every system; the time limit of each call applies in any case.
serve()
