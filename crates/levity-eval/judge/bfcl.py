"""Scores trials by the checker of the Berkeley Function Calling Leaderboard (package `bfcl-eval`).

usage: bfcl.py [FOLDER]    FOLDER has the package `bfcl_eval`, if it is not installed

One JSON line for each trial on standard input, one JSON line with its score on standard output.
"""

import importlib.metadata
import json
import sys
import types


class Config:
    """The part of a model's settings that the checker reads: `.` in names of functions was sent as `_`."""

    underscore_to_dot = True


class Configs(dict):
    def __missing__(self, name):
        return Config


# The checker imports the settings of all models, and with them the clients of all providers. It needs one field.
settings = types.ModuleType("bfcl_eval.constants.model_config")
settings.MODEL_CONFIG_MAPPING = Configs()
sys.modules[settings.__name__] = settings

from bfcl_eval.constants.enums import Language  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402


def score(case, calls):
    category, source = case["category"], case["source"]
    if "irrelevance" in category:
        return (not calls, "a function was called" if calls else "")
    if not calls:
        return (False, "no function was called")
    if not all(isinstance(call["arguments"], dict) for call in calls):
        return (False, "arguments are no object")
    output = [{call["name"]: call["arguments"]} for call in calls]
    try:
        result = ast_checker(source["function"], output, source["answer"], Language.PYTHON, category, "levity")
    except Exception as error:  # The checker does not expect every value that a model can write.
        return (False, f"the checker failed: {type(error).__name__}: {error}")
    return (result["valid"], "" if result["valid"] else f"{result['error_type']}: {result['error']}")


places = {"path": sys.argv[1:2]} if sys.argv[1:] else {}
found = importlib.metadata.distributions(name="bfcl-eval", **places)
version = next((package.version for package in found), "of unknown version")
print(json.dumps({"judge": f"bfcl-eval {version}"}))
for line in sys.stdin:
    asked = json.loads(line)
    passed, reason = score(asked["case"], asked["trial"]["transcript"]["calls"])
    print(json.dumps({"passed": bool(passed), "reason": str(reason)[:2000]}))
