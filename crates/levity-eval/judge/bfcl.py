"""Scores trials by the checkers of the Berkeley Function Calling Leaderboard (package `bfcl-eval`).

usage: bfcl.py [FOLDER]    FOLDER has the package `bfcl_eval`, if it is not installed

One JSON line for each trial on standard input, one JSON line with its score on standard output.
"""

import ast
import importlib
import importlib.metadata
import inspect
import json
import sys
import types

scores = sys.stdout
sys.stdout = sys.stderr  # Output of the package is not a score.


class Config:
    """The settings of a model that the checker reads: `.` in names of functions was sent as `_`."""

    underscore_to_dot = True


class Configs(dict):
    def __missing__(self, name):
        return Config


# The checker imports the settings of all models, and with them the clients of all providers, but
# needs only one field.
settings = types.ModuleType("bfcl_eval.constants.model_config")
settings.MODEL_CONFIG_MAPPING = Configs()
sys.modules[settings.__name__] = settings

import bfcl_eval  # noqa: E402,F401


def one_turn(case, calls):
    category, source = case["category"], case["source"]
    if "irrelevance" in category:
        return (not calls, "a function was called" if calls else "")
    if not calls:
        return (False, "no function was called")
    if not all(isinstance(call["arguments"], dict) for call in calls):
        return (False, "arguments are not an object")
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    output = [{call["name"]: call["arguments"]} for call in calls]
    try:
        result = ast_checker(
            source["function"], output, source["answer"], Language.PYTHON, category, "levity"
        )
    except Exception as error:  # The checker does not expect every value that a model can write.
        return (False, f"the checker failed: {type(error).__name__}: {error}")
    if result["valid"]:
        return (True, "")
    return (False, f"{result['error_type']}: {result['error']}")


def methods(classes):
    """Yields the names of all functions that a case may call."""
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

    for name in classes:
        if name.startswith(("Memory", "WebSearch")) or name not in CLASS_FILE_PATH_MAPPING:
            raise ValueError(f"no class `{name}` that is supported here")
        class_ = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)
        members = inspect.getmembers(class_, inspect.isfunction)
        yield from (method for method, _ in members if method[0] != "_")


def rendered(call, names):
    """Returns a call as the checker evaluates it: a known name with literal values."""
    name, arguments = call["name"], call["arguments"]
    if name not in names:
        raise ValueError(f"no function `{name}`")
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of `{name}` are not an object")
    # The checker inserts an object name before each word that a parenthesis follows, even in
    # strings. In the `repr` of JSON, parentheses occur only in strings.
    return f"{name}(**" + repr(arguments).replace("(", "\\x28") + ")"


def require_plain(answer, names):
    """Rejects a possible answer that is not a plain call.

    Answers are evaluated, and the folder may be untrusted.
    """
    call = ast.parse(answer, mode="eval").body
    is_name = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    if not (is_name and call.func.id in names):
        raise ValueError(f"the possible answer `{answer}` is not a function call")
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        ast.literal_eval(value)


def many_turns(case, turns, number):
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    environment, answer = case["environment"], case["source"]["answer"]
    if len(turns) != len(answer):
        return (False, f"{len(turns)} of {len(answer)} turns were answered")
    # The checker stores objects under this name, and each trial needs its own.
    model = f"levity{number}"
    try:
        names = set(methods(environment["classes"]))
        for text in (text for turn in answer for text in turn):
            require_plain(text, names)
        calls = [[[rendered(call, names)] for call in turn["calls"]] for turn in turns]
        length = "long_context" if environment.get("long_context") else "base"
        entry = {
            # The checker inserts the id into code, and only reads from it if the context is long.
            "id": f"multi_turn_{length}_0",
            "involved_classes": environment["classes"],
            "initial_config": environment["config"],
        }
        result = multi_turn_checker(calls, answer, entry, case["category"], model)
    except ImportError:
        raise  # A missing dependency of the package is not a failure of the subject.
    except Exception as error:
        return (False, f"the checker failed: {type(error).__name__}: {error}")
    finally:
        for name in [name for name in vars(multi_turn_utils) if name.startswith(f"{model}_")]:
            delattr(multi_turn_utils, name)
    if result["valid"]:
        return (True, "")
    details = result.get("details", {})
    details = details.get("differences") or details.get("missing_items") or ""
    return (False, f"{result['error_type']}: {result['error_message']} {details}".strip())


def write_score(value):
    scores.write(json.dumps(value) + "\n")


places = {"path": sys.argv[1:2]} if sys.argv[1:] else {}
found = importlib.metadata.distributions(name="bfcl-eval", **places)
version = next((package.version for package in found), "of unknown version")
write_score({"judge": f"bfcl-eval {version}"})
for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    case, transcript = request["case"], request["trial"]["transcript"]
    if case["category"].startswith("multi_turn"):
        passed, reason = many_turns(case, transcript.get("turns", []), number)
    else:
        passed, reason = one_turn(case, transcript["calls"])
    write_score({"passed": bool(passed), "reason": str(reason)[:2000]})
