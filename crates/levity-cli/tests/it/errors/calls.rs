//! Situations of invalid calls.

use super::{HELLO, Row};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "unknown option with similar name",
        "levity run hi --modle a",
        2,
        "unexpected argument '--modle' found; a similar argument exists: '--model'",
    )
    .documented(),
    Row::new(
        "unknown option",
        "levity run hi --zzz",
        2,
        "unexpected argument '--zzz' found; to pass '--zzz' as a value, use '-- --zzz'",
    ),
    Row::new(
        "unknown subcommand",
        "levity rnu hi",
        2,
        "unrecognized subcommand 'rnu'; a similar subcommand exists: 'runs'",
    )
    .documented(),
    Row::new(
        "unknown subcommand of runs",
        "levity runs shwo",
        2,
        "unrecognized subcommand 'shwo'; a similar subcommand exists: 'show'",
    ),
    Row::new(
        "missing argument",
        "levity run",
        2,
        "the following required arguments were not provided: <GOAL>; Usage: levity run <GOAL>",
    )
    .documented(),
    Row::new(
        "missing value",
        "levity run hi --model",
        2,
        "a value is required for '--model <SPEC>' but none was supplied; try `--help`",
    )
    .documented(),
    Row::new(
        "value that is not a number",
        "levity run hi --max-turns x",
        2,
        "invalid value 'x' for '--max-turns <N>': it is not a whole number in range; use one \
         such as 10",
    )
    .documented(),
    Row::new(
        "number that is too large",
        "levity run hi --max-turns 99999999999999999999",
        2,
        "invalid value '99999999999999999999' for '--max-turns <N>': it is not a whole number \
         in range; use one such as 10",
    ),
    Row::new(
        "no turns",
        "levity run -q hi --max-turns 0",
        2,
        "`max_turns` is 0, but an agent needs a turn to answer; set 1 or more",
    )
    .documented(),
    Row::new(
        "negative cost",
        "levity run hi --limit-cost=-1",
        2,
        "invalid value '-1' for '--limit-cost <DOLLARS>': use an amount of dollars, 0 or more, \
         such as 0.25",
    )
    .documented(),
    Row::new(
        "unknown worker",
        "levity swarm hi --worker boss",
        2,
        "invalid value 'boss' for '--worker <NAME>'; use researcher, coder, reviewer",
    )
    .documented(),
    Row::new(
        "percentage out of range",
        "levity eval score x --fail-under 200",
        2,
        "invalid value '200' for '--fail-under <PERCENT>': use a number from 0 to 100",
    ),
    Row::new(
        "options that exclude each other",
        "levity run hi --json -q",
        2,
        "the argument '--json' cannot be used with '--quiet'; remove one of them",
    )
    .documented(),
    Row::new(
        "option without its companion",
        "levity run hi --conversation c",
        2,
        "the following required arguments were not provided: --memory <PATH>; Usage: levity \
         run --memory <PATH> --conversation <ID> <GOAL>",
    ),
    Row::new(
        "surplus argument",
        "levity run hi there",
        2,
        "unexpected argument 'there' found; Usage: levity run [OPTIONS] <GOAL>",
    ),
    Row::new(
        "empty goal",
        "levity run ''",
        2,
        "invalid value '' for '<GOAL>': the goal has no visible text; describe the task",
    )
    .documented(),
    Row::new(
        "empty prompt",
        "levity complete --model ollama:m ''",
        2,
        "the prompt is empty; write a prompt",
    )
    .documented(),
    Row::new(
        "unknown guard",
        "levity run hi --guard secret",
        2,
        "invalid value 'secret' for '--guard <RULE>': unknown guard `secret`; use secrets, \
         secrets:block, input:BYTES, call:BYTES, result:BYTES, answer:BYTES or topic:WORDS",
    )
    .documented(),
    Row::new(
        "unknown thinking mode",
        "levity run hi --thinking lots",
        2,
        "invalid value 'lots' for '--thinking <HOW>': use auto, model, off, low, medium, high, \
         or a number of tokens",
    ),
    Row::new(
        "malformed price",
        "levity run hi --limit-cost 1 --assume-price 1",
        2,
        "invalid value '1' for '--assume-price <INPUT:OUTPUT>': use two amounts of dollars per \
         million tokens, such as 0.5:2",
    )
    .documented(),
    Row::new(
        "park without journal",
        "levity run -q hi --park",
        2,
        "`--park` requires a journal; name one with `--journal`",
    )
    .documented(),
    Row::new(
        "limit of guard",
        "levity run -q hi --script hello.json --guard answer:0",
        2,
        "invalid value 'answer:0' for '--guard <RULE>': give the maximum number of bytes, such \
         as `answer:20000`",
    )
    .files(&[HELLO]),
    Row::new(
        "resume without sessions",
        "levity plan --resume x",
        2,
        "the following required arguments were not provided: --sessions <DIR>; Usage: levity \
         plan --sessions <DIR> --resume <ID> [GOAL]",
    ),
    Row::new(
        "parallel steps",
        "levity plan x --view none --script hello.json --max-parallel 0",
        2,
        "`max_parallel` is 0, so no step could start; set 1 to run one step at a time",
    )
    .files(&[HELLO])
    .documented(),
];
