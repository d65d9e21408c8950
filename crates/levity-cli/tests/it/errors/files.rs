//! Situations of files that the command reads.

use super::{HELLO, Row};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "missing request",
        "levity complete --model ollama:m --request nowhere",
        2,
        "cannot read `nowhere`: no such file or folder; check the path",
    )
    .documented(),
    Row::new(
        "request is a folder",
        "levity complete --model ollama:m --request .",
        2,
        "cannot read `.`: it is a folder; use the path of a file",
    ),
    Row::new(
        "request is not UTF-8",
        "printf 'caf\\351' > a; levity complete --model ollama:m --request a",
        2,
        "cannot read `a`: it is not UTF-8; save it as UTF-8",
    )
    .documented(),
    Row::new(
        "request is too large",
        "truncate -s 65M a; levity complete --model ollama:m --request a",
        2,
        "cannot read `a`: it has more than 64 MiB; use a smaller file",
    )
    .documented(),
    Row::new(
        "request is not JSON",
        "levity complete --model ollama:m --request a.json",
        2,
        "`a.json` is not a valid request: expected value at line 2 column 5",
    )
    .files(&[("a.json", "{\"history\":\n [1,}")])
    .documented(),
    Row::new(
        "request with unknown field",
        "levity complete --model ollama:m --request a.json",
        2,
        "`a.json` is not a valid request: unknown field `histroy`; use one of system, history, \
         tools, tool_choice, output, options",
    )
    .files(&[("a.json", r#"{"histroy": []}"#)])
    .documented(),
    Row::new(
        "missing script",
        "levity run -q hi --script nowhere.json",
        2,
        "cannot read `nowhere.json`: no such file or folder; check the path",
    ),
    Row::new(
        "script is a folder",
        "levity run -q hi --script .",
        2,
        "cannot read `.`: it is a folder; use the path of a file",
    )
    .documented(),
    Row::new(
        "script is not UTF-8",
        "printf 'caf\\351' > a; levity run -q hi --script a",
        2,
        "cannot read `a`: it is not UTF-8; save it as UTF-8",
    ),
    Row::new(
        "script is too large",
        "truncate -s 65M a; levity run -q hi --script a",
        2,
        "`a` is larger than 64 MiB; use a smaller file",
    )
    .documented(),
    Row::new(
        "script is not JSON",
        "levity run -q hi --script a.json",
        2,
        "`a.json`: the script is not a JSON list of steps: EOF while parsing a list at line 1 \
         column 15",
    )
    .files(&[("a.json", r#"[{"reply": "a"}"#)])
    .documented(),
    Row::new(
        "script with unknown step",
        "levity run -q hi --script a.json",
        2,
        "`a.json`: step 2 of the script cannot be read: unknown field `answer`, expected one \
         of `reply`, `call`, `calls`, `text`, `thinking`, `fail`, `hang`, `usage`, `finish`",
    )
    .files(&[("a.json", r#"[{"reply": "a"}, {"answer": "b"}]"#)])
    .documented(),
    Row::new(
        "list of models is not JSON",
        "LEVITY_MODELS={dir}/a.json levity complete Hi",
        2,
        "`{dir}/a.json`, line 2, column 3: key must be a string",
    )
    .files(&[("a.json", "{\"servers\":\n {,}}")])
    .documented(),
    Row::new(
        "list of models with unknown field",
        "LEVITY_MODELS={dir}/a.json levity complete Hi",
        2,
        "`{dir}/a.json`, line 1, column 9: unknown field `servrs`, expected one of `checked`, \
         `models`, `servers`, `defaults`, `profiles`",
    )
    .files(&[("a.json", r#"{"servrs": {}}"#)]),
    Row::new(
        "missing list of models",
        "LEVITY_MODELS={dir}/a.json levity complete Hi",
        2,
        "`{dir}/a.json` cannot be read: no such file or folder; check the path",
    )
    .documented(),
    Row::new(
        "list of models is not UTF-8",
        "printf 'caf\\351' > a.json; LEVITY_MODELS={dir}/a.json levity complete Hi",
        2,
        "`{dir}/a.json` cannot be read: it is not UTF-8; save it as UTF-8",
    ),
    Row::new(
        "list of models is a folder",
        "mkdir a.json; LEVITY_MODELS={dir}/a.json levity complete Hi",
        2,
        "`{dir}/a.json` cannot be read: it is not a regular file; use the path of one",
    ),
    Row::new(
        "server with invalid address",
        "LEVITY_MODELS={dir}/a.json levity complete --model house:m Hi",
        2,
        "`nonsense` is not a valid server address for `house:m`; write `http://HOST:PORT/v1` \
         or `https://HOST/v1`, and `%40` for an `@` in a password",
    )
    .files(&[(
        "a.json",
        r#"{"servers": {"house": {"base_url": "nonsense", "default": "m"}}}"#,
    )])
    .documented(),
    Row::new(
        "missing plan",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "cannot read the plan `a.json`: no such file or folder; check the path",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "plan is a folder",
        "mkdir a.json; levity plan --view none --script hello.json --plan a.json",
        2,
        "cannot read the plan `a.json`: it is not a regular file; use the path of one",
    )
    .files(&[HELLO]),
    Row::new(
        "plan is not UTF-8",
        "printf 'caf\\351' > a.json; levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan `a.json` is not valid UTF-8 at byte 3; save it as UTF-8",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "plan is cut off",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan `a.json` is invalid: the plan is cut off at byte 23; write it completely",
    )
    .files(&[HELLO, ("a.json", r#"{"steps": [{"id": "a", "#)])
    .documented(),
    Row::new(
        "plan without steps",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: the plan has no steps; add at least one to `steps`",
    )
    .files(&[HELLO, ("a.json", r#"{"steps": []}"#)]),
    Row::new(
        "plan with unknown field",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan `a.json` is invalid: step `a`: there is no field `agnt`; did you mean \
         `agent`?",
    )
    .files(&[
        HELLO,
        ("a.json", r#"{"steps": [{"id": "a", "agnt": "Thinker"}]}"#),
    ])
    .documented(),
    Row::new(
        "plan with unknown agent",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: step `a` has the unknown agent `Thinkr`; did you mean \
         `Thinker`?",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            r#"{"steps": [{"id": "a", "agent": "Thinkr", "prompt": "x"}]}"#,
        ),
    ])
    .documented(),
    Row::new(
        "plan with unknown step",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: step `a` follows `c`, which does not exist; correct \
         the plan",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            r#"{"steps": [{"id": "a", "agent": "Thinker", "prompt": "x", "after": ["c"]}]}"#,
        ),
    ])
    .documented(),
    Row::new(
        "plan with cycle",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: the steps form a cycle: `a -> b -> a`; remove one of \
         these edges",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            "{\"steps\": [{\"id\": \"a\", \"agent\": \"Thinker\", \"after\": \
             [\"b\"]},\n{\"id\": \"b\", \"agent\": \"Thinker\", \"after\": [\"a\"]}]}",
        ),
    ])
    .documented(),
    Row::new(
        "plan with unknown variable",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: step `a` reads `y`, which no step writes and `given` \
         does not set; correct the plan",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            r#"{"steps": [{"id": "a", "agent": "Thinker", "prompt": "x", "reads": ["y"]}]}"#,
        ),
    ])
    .documented(),
    Row::new(
        "plan with one id twice",
        "levity plan --view none --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: steps 1 and 2 both have the id `a`; give each its own",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            r#"{"steps": [{"id": "a", "agent": "Thinker"}, {"id": "a", "agent": "Thinker"}]}"#,
        ),
    ])
    .documented(),
    Row::new(
        "plan with unknown worker",
        "levity swarm -q --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: `a` is for `boss`, who is not there; correct the plan",
    )
    .files(&[
        HELLO,
        ("a.json", r#"[{"id": "a", "worker": "boss", "task": "x"}]"#),
    ])
    .documented(),
    Row::new(
        "swarm plan with unknown dependency",
        "levity swarm -q --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: `a` depends on `c`, which does not exist; did you \
         mean `a`?",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            r#"[{"id": "a", "worker": "coder", "task": "x", "depends_on": ["c"]}]"#,
        ),
    ])
    .documented(),
    Row::new(
        "swarm plan with cycle",
        "levity swarm -q --script hello.json --plan a.json",
        2,
        "the plan cannot be carried out: `a` → `b` depend on each other in a cycle; remove one \
         dependency",
    )
    .files(&[
        HELLO,
        (
            "a.json",
            "[{\"id\": \"a\", \"worker\": \"coder\", \"task\": \"x\", \"depends_on\": \
             [\"b\"]},\n{\"id\": \"b\", \"worker\": \"coder\", \"task\": \"x\", \
             \"depends_on\": [\"a\"]}]",
        ),
    ]),
    Row::new(
        "swarm plan is not JSON",
        "levity swarm -q --script hello.json --plan a.json",
        2,
        "`a.json` is not a valid plan; use this form: [{\"id\": \"..\", \"worker\": \"..\", \
         \"task\": \"..\", \"depends_on\": []}]",
    )
    .files(&[HELLO, ("a.json", r#"[{"id": "a", "#)])
    .documented(),
    Row::new(
        "missing file of plan",
        "levity plan hi --view none --script hello.json --file nowhere.csv",
        2,
        "`nowhere.csv` does not exist; check the path",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "missing agents",
        "levity plan hi --view none --script hello.json --agents agents",
        2,
        "cannot read `agents`: no such file or folder; check the path",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "agents with unknown setting",
        "levity plan hi --view none --script hello.json --agents agents",
        2,
        "`agents/agent_config.yaml`, line 3: agent `Planner`: unknown setting `modl`; did you \
         mean `model`?",
    )
    .files(&[
        HELLO,
        (
            "agents/agent_config.yaml",
            "agents:\n  Planner:\n    modl: x\n",
        ),
    ])
    .documented(),
    Row::new(
        "agents are not YAML",
        "levity plan hi --view none --script hello.json --agents agents",
        2,
        "`agents/agent_config.yaml`, line 4: column 1: invalid YAML: while parsing a flow \
         mapping, did not find expected ',' or '}'",
    )
    .files(&[
        HELLO,
        (
            "agents/agent_config.yaml",
            "agents:\n  Planner: [\n    a: x\n",
        ),
    ])
    .documented(),
    Row::new(
        "missing prompt",
        "levity plan hi --view none --script hello.json --agents agents",
        2,
        "`agents/agent_config.yaml`, line 3: agent `Helper`: no prompt file `nowhere.md` in \
         `agents` or its `prompts`; add it",
    )
    .files(&[
        HELLO,
        (
            "agents/agent_config.yaml",
            "agents:\n  Helper:\n    prompt_file: nowhere.md\n",
        ),
    ])
    .documented(),
    Row::new(
        "prompt is not UTF-8",
        "printf 'caf\\351' > agents/helper.md; levity plan hi --view none --script hello.json \
         --agents agents",
        2,
        "`agents/agent_config.yaml`, line 3: agent `Helper`: the prompt file `helper.md`: it \
         is not UTF-8 on line 1; save it as UTF-8",
    )
    .files(&[
        HELLO,
        (
            "agents/agent_config.yaml",
            "agents:\n  Helper:\n    prompt_file: helper.md\n",
        ),
    ]),
    Row::new(
        "agent with unknown model",
        "levity plan hi --view none --script hello.json --agents agents",
        2,
        "no model of the agent `Helper` is available: `foo`: `foo` is not a model name; write \
         `provider:model`, such as `gemini:gemini-3.8-flash`; name another model, or omit \
         `model` to use the default one",
    )
    .files(&[
        HELLO,
        (
            "agents/agent_config.yaml",
            "agents:\n  Helper:\n    description: x\n    prompt_file: helper.md\n    model: \
             foo\n",
        ),
        ("agents/helper.md", "Help."),
    ]),
    Row::new(
        "missing suite",
        "levity eval run --suite a.jsonl --out out -- cat",
        2,
        "`a.jsonl`: no such file or folder; a suite is `bfcl` or a file with one case on each \
         line",
    )
    .documented(),
    Row::new(
        "case is cut off",
        "levity eval run --suite a.jsonl --out out -- cat",
        2,
        "`a.jsonl`, line 2: column 12: EOF while parsing a value; a suite is `bfcl` or a file \
         with one case on each line",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n{\"id\": \"b\", ",
    )])
    .documented(),
    Row::new(
        "case without messages",
        "levity eval run --suite a.jsonl --out out -- cat",
        2,
        "`a.jsonl`, line 2: column 11: missing field `messages`; a suite is `bfcl` or a file \
         with one case on each line",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n{\"id\": \"b\"}",
    )]),
    Row::new(
        "two cases with one id",
        "levity eval run --suite a.jsonl --out out -- cat",
        2,
        "two cases have the id `a`; rename one",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n{\"id\": \"a\", \
             \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"expect\": {\"kind\": \
             \"contains\", \"text\": \"7\"}}\n",
    )])
    .documented(),
    Row::new(
        "no case selected",
        "levity eval run --suite a.jsonl --out out --offset 9 -- cat",
        2,
        "no case is selected; check `--limit`, `--offset` and `--categories`",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n",
    )]),
    Row::new(
        "unknown category",
        "levity eval run --suite a.jsonl --out out --categories c -- cat",
        2,
        "`a.jsonl` has no category `c`; check `--categories`",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n",
    )]),
    Row::new(
        "output of evaluation is a file",
        "touch out; levity eval run --suite a.jsonl --out out -- cat",
        1,
        "`out`: a file has this name; choose another path",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n",
    )]),
    Row::new(
        "missing results",
        "levity eval score nowhere",
        2,
        "there are no results: `nowhere/evaluation.json`: no such file or folder; create them \
         with `levity eval run --out`",
    )
    .documented(),
    Row::new(
        "results of another evaluation",
        "levity eval run --suite a.jsonl --out out -q -- true >/dev/null 2>&1; levity eval run \
         --suite a.jsonl --out out -- false",
        2,
        "`out` contains results of another evaluation: `command` is [\"true\"] in the folder \
         and [\"false\"] now; use another folder",
    )
    .files(&[(
        "a.jsonl",
        "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \
             \"expect\": {\"kind\": \"contains\", \"text\": \"7\"}}\n",
    )])
    .documented(),
    Row::new(
        "missing data of benchmark",
        "levity eval run --suite bfcl --data nowhere --out out -- cat",
        2,
        "`nowhere` has no file `BFCL_v4_simple_python.json`; pass the folder `bfcl_eval/data` \
         of the Python package `bfcl-eval`",
    ),
];
