"""One line of JSON in for each case, one line of JSON out; see docs/eval.md."""

import json
import os
import sys
import time

URL = os.environ.get("BASE_URL", "http://127.0.0.1:8080/v1")
MODEL = os.environ.get("MODEL", "qwen")
MAX_TOKENS = 512

# Libraries print what they like; only answers may go to the standard output.
out, sys.stdout = sys.stdout, sys.stderr


def serve(answer):
    """Calls `answer(case, calls)` for each case.

    It appends to `calls` what reaches a tool, and returns (text, input tokens, output tokens).
    """
    for line in sys.stdin:
        case, calls = json.loads(line), []
        reply = {"calls": calls}
        began = time.process_time()
        try:
            text, tokens_in, tokens_out = answer(case, calls)
            reply.update(text=str(text or ""), usage={"input": tokens_in, "output": tokens_out})
        except Exception as error:
            reply["error"] = f"{type(error).__name__}: {error}"[:2000]
        reply["messages"] = [{"cpu_seconds": round(time.process_time() - began, 3)}]
        print(json.dumps(reply), file=out, flush=True)
