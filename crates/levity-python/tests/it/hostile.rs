//! Tests with malicious programs: each ends with a typed error, within its limits, and the process
//! survives.

use std::time::Duration;

use levity_python::ProgramFaultKind::{self, Crashed, Memory, Raised, Size, Syntax, Time};
use levity_python::{Isolation, ProgramLimits, Python};
use serde_json::json;

use crate::support::places;

/// A program, its possible faults, and whether a thread can stop it as well as a process.
struct Case(&'static str, &'static [ProgramFaultKind], StoppedBy);

#[derive(Clone, Copy, PartialEq)]
enum StoppedBy {
    Both,
    /// Only a process can be stopped in the middle of one operation.
    Process,
}
use StoppedBy::{Both, Process};

/// The program may also succeed, as long as it ends.
const ANY: &[ProgramFaultKind] = &[];

const CASES: &[Case] = &[
    // Endless loops.
    Case("while True: pass", &[Time], Both),
    Case(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        &[Time],
        Both,
    ),
    Case(
        "def f():\n    try:\n        return f()\n    finally:\n        while True: pass\nf()",
        &[Time],
        Both,
    ),
    Case(
        "def g():\n    try:\n        g()\n    finally:\n        g()\ng()",
        &[Time, Raised],
        Both,
    ),
    Case("sum(1 for _ in iter(int, 1))", &[Time], Both),
    Case("max(iter(int, 1))", &[Time], Both),
    Case("[x for x in iter(int, 1) if x]", &[Time], Both),
    Case("any(x for x in iter(int, 1))", &[Time], Both),
    Case(
        "import itertools\nfor x in itertools.count(): pass",
        &[Time],
        Both,
    ),
    Case("import itertools\nsum(itertools.repeat(0))", &[Time], Both),
    Case(
        "class I:\n    def __iter__(self): return self\n    def __next__(self): return 1\nfor x in \
            I(): pass",
        &[Time],
        Both,
    ),
    Case("x = [1]\nfor y in x: x.append(y)", &[Time, Memory], Both),
    Case(
        "a, b = 0, 1\nwhile True: a, b = b, (a + b) % 1000007",
        &[Time],
        Both,
    ),
    Case(
        "def f(n): return 1 if n < 2 else f(n - 1) + f(n - 2)\nf(60)",
        &[Time],
        Both,
    ),
    Case(
        "sorted(list(range(100000)), key=lambda v: sum(range(10 ** 6)))",
        &[Time],
        Both,
    ),
    Case("min(range(10 ** 9), key=lambda v: -v)", &[Time], Both),
    Case(
        "import asyncio\nasync def f():\n    while True: pass\nawait f()",
        &[Time],
        Both,
    ),
    Case(
        "import functools\nfunctools.reduce(lambda a, b: b, iter(int, 1))",
        &[Time],
        Both,
    ),
    // Memory use.
    Case("l = []\nwhile True: l.append('x' * 1000)", &[Memory], Both),
    Case("list(range(10 ** 10))", &[Memory, Time], Both),
    Case("'a' * 10 ** 10", &[Memory], Both),
    Case("[0] * 10 ** 9", &[Memory], Both),
    Case("(1,) * 10 ** 9", &[Memory], Both),
    Case("bytes(10 ** 10)", &[Memory], Both),
    Case("b'a' * 10 ** 11", &[Memory], Both),
    Case("x = 'ab'\nwhile True: x += x", &[Memory], Both),
    Case("x = b'ab'\nwhile True: x = x + x", &[Memory], Both),
    Case(
        "d = {}\ni = 0\nwhile True:\n    d[i] = 'x' * 1000 + str(i)\n    i += 1",
        &[Memory, Time],
        Both,
    ),
    Case(
        "x = [1] * 1000\nwhile True: x = [x] * 1000",
        &[Memory, Time],
        Both,
    ),
    Case(
        "x = [[0] * 1000 for _ in range(10 ** 6)]",
        &[Memory, Time],
        Both,
    ),
    Case("'x'.ljust(10 ** 10)", &[Memory], Both),
    Case("'x'.center(10 ** 10)", &[Memory], Both),
    Case("'x'.zfill(10 ** 10)", &[Memory], Both),
    Case(
        "f'{1:1000000000}'",
        &[Memory, Time, Raised, Crashed],
        Process,
    ),
    Case(
        "'{:>1000000000}'.format(1)",
        &[Memory, Time, Raised, Crashed],
        Process,
    ),
    Case("'abc'.replace('', 'x' * 10 ** 9)", &[Memory], Both),
    Case(
        "('ab' * 10 ** 6).replace('a', 'x' * 10 ** 6)",
        &[Memory],
        Both,
    ),
    Case(
        "'x'.join(['y' * 10 ** 6] * 10 ** 6)",
        &[Memory, Crashed],
        Both,
    ),
    Case(
        "('a' * 10 ** 8).split('a')",
        &[Memory, Crashed, Time],
        Process,
    ),
    Case(
        "'\\t'.expandtabs(10 ** 10)",
        &[Memory, Raised, Time, Crashed],
        Process,
    ),
    Case(
        "import itertools\nlist(itertools.product(range(1000), repeat=5))",
        &[Memory, Time, Raised],
        Both,
    ),
    Case(
        "import json\njson.dumps(['x' * 10 ** 6] * 10 ** 6)",
        &[Memory, Time, Crashed],
        Process,
    ),
    Case(
        "import base64\nbase64.b64encode(b'x' * 10 ** 9)",
        &[Memory],
        Both,
    ),
    Case(
        "import unicodedata\nunicodedata.normalize('NFKD', '\\ufdfa' * 10 ** 7)",
        &[Memory, Time, Crashed],
        Process,
    ),
    Case("print('x' * 10 ** 11)", &[Memory], Both),
    Case(
        "class A: pass\nl = []\nwhile True: l.append(A())",
        &[Memory, Time],
        Both,
    ),
    Case(
        "l = []\nwhile True:\n    a = []\n    a.append(a)\n    l.append(a)",
        &[Memory, Time],
        Both,
    ),
    Case(
        "while True:\n    try:\n        x = 'a' * 10 ** 10\n    except BaseException: pass",
        &[Memory, Time],
        Both,
    ),
    // Huge numbers.
    Case("2 ** 10 ** 10", &[Memory], Both),
    Case("10 ** 10 ** 7", ANY, Process),
    Case("1 << 10 ** 12", &[Memory], Both),
    Case("x = 3\nwhile True: x = x * x", &[Time, Memory], Process),
    Case("pow(3, 10 ** 100000, 10 ** 100000 + 1)", &[Time], Process),
    Case("divmod(10 ** 3000000, 10 ** 1500000 + 7)", ANY, Process),
    Case(
        "import math\nmath.factorial(10 ** 7)",
        &[Raised, Time, Memory],
        Process,
    ),
    Case("import math\nmath.comb(10 ** 6, 5 * 10 ** 5)", ANY, Process),
    Case("str(7 ** 100000)", &[Raised], Both),
    Case("int('9' * 10 ** 6)", &[Raised], Both),
    Case(
        "hash(10 ** 100000) and round(1e308 * 10, 10 ** 9)",
        ANY,
        Both,
    ),
    // Deep nesting.
    Case("def f(): return f()\nf()", &[Raised], Both),
    Case("def f(n): return [f(n + 1)]\nf(0)", &[Raised], Both),
    Case("f = lambda x: f(x)\nf(1)", &[Raised], Both),
    Case(
        "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __eq__(self, o): return self == o\nA() == A()",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __hash__(self): return hash(self)\n{A(): 1}",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __getattr__(self, n): return self.x\nA().y",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __len__(self): return len(self)\nlen(A())",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __str__(self): return f'{self}'\nstr(A())",
        &[Raised],
        Both,
    ),
    Case(
        "class A:\n    def __contains__(self, x): return x in self\n1 in A()",
        &[Raised],
        Both,
    ),
    Case("a = []\nfor _ in range(20000): a = [a]\nrepr(a)", ANY, Both),
    Case("a = []\nfor _ in range(20000): a = [a]\na", ANY, Both),
    Case(
        "a = ()\nfor _ in range(20000): a = (a,)\nhash(a)",
        &[Raised, Time],
        Both,
    ),
    Case(
        "a = []\nb = []\nfor _ in range(20000): a, b = [a], [b]\na == b",
        &[Raised, Time],
        Both,
    ),
    Case(
        "a = {}\nfor _ in range(20000): a = {'a': a}\nstr(a)",
        ANY,
        Both,
    ),
    Case(
        "import json\na = []\nfor _ in range(20000): a = [a]\njson.dumps(a)",
        &[Raised, Time],
        Both,
    ),
    Case("import json\njson.loads('[' * 1000000)", &[Raised], Both),
    Case(
        "import json\njson.loads('{\"a\":' * 100000)",
        &[Raised],
        Both,
    ),
    Case("x = []\nx.append(x)\nx == [x]\nprint(x)\nx", ANY, Both),
    Case(
        "import asyncio\nasync def f(): return await f()\nawait f()",
        &[Raised],
        Both,
    ),
    Case(
        "async def f(n):\n    return await f(n + 1) if n < 10 ** 6 else n\nimport asyncio\nawait \
            asyncio.gather(*[f(0) for _ in range(100)])",
        &[Raised, Time, Memory],
        Both,
    ),
    Case(
        "map_ = range(3)\nfor _ in range(50000): map_ = map(lambda x: x, map_)\nlist(map_)",
        ANY,
        Process,
    ),
    Case(
        "e = None\nfor i in range(20000):\n    try:\n        raise ValueError(i) from e\n    \
            except ValueError as x:\n        e = x\nraise e",
        &[Raised, Time],
        Both,
    ),
    Case(
        "def f(n):\n    try:\n        f(n + 1)\n    except RecursionError:\n        f(n + 1)\nf(0)",
        &[Raised, Time],
        Both,
    ),
    // Escape attempts.
    Case("().__class__.__base__.__subclasses__()", &[Raised], Both),
    Case("(lambda: 0).__globals__", &[Raised], Both),
    Case("(lambda: 0).__code__.co_consts", &[Raised], Both),
    Case("type(1).__mro__", &[Raised], Both),
    Case("''.__class__.__mro__[1]", &[Raised], Both),
    Case("getattr((), '__cl' + 'ass__')", &[Raised], Both),
    Case("'{0.__class__.__mro__}'.format(1)", &[Raised], Both),
    Case("f\"{().__class__}\"", &[Raised], Both),
    Case(
        "'{x.__init__.__globals__}'.format(x=print)",
        &[Raised],
        Both,
    ),
    Case("import os\nos.system('id')", &[Raised], Both),
    Case("import os\nos.environ['PATH']", &[Raised], Both),
    Case("import os\nos.getenv('PATH')", &[Raised], Both),
    Case("import os\nos.listdir('/')", &[Raised], Both),
    Case("import sys\nsys.modules['os']", &[Raised], Both),
    Case(
        "import sys\nsys.setrecursionlimit(10 ** 9)",
        &[Raised],
        Both,
    ),
    Case("import sys\nsys._getframe()", &[Raised], Both),
    Case("import subprocess", &[Raised], Both),
    Case("import socket", &[Raised], Both),
    Case("import ctypes", &[Raised], Both),
    Case("import importlib", &[Raised], Both),
    Case("import builtins", &[Raised], Both),
    Case("import pickle", &[Raised], Both),
    Case("import threading", &[Raised], Both),
    Case("import multiprocessing", &[Raised], Both),
    Case("from os import *", &[Raised, Syntax], Both),
    Case("import gc\ngc.get_objects()", &[Raised], Both),
    Case("import time\ntime.sleep(100)", &[Raised], Both),
    Case("import random", &[Raised], Both),
    Case("import asyncio\nawait asyncio.sleep(100)", &[Raised], Both),
    Case(
        "from datetime import datetime\ndatetime.now()",
        &[Raised],
        Both,
    ),
    Case("from datetime import date\ndate.today()", &[Raised], Both),
    Case("open('/etc/passwd').read()", &[Raised], Both),
    Case("open('x', 'w').write('x')", &[Raised], Both),
    Case(
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        &[Raised],
        Both,
    ),
    Case(
        "from pathlib import Path\nlist(Path('/').iterdir())",
        &[Raised],
        Both,
    ),
    Case(
        "from pathlib import Path\nPath('/tmp/x').write_text('x')",
        &[Raised],
        Both,
    ),
    Case(
        "from pathlib import Path\nPath('/tmp').exists()",
        &[Raised],
        Both,
    ),
    Case("eval('1')", &[Raised], Both),
    Case("exec('x = 1')", &[Raised], Both),
    Case("compile('1', 'x', 'eval')", &[Raised], Both),
    Case("__import__('os')", &[Raised], Both),
    Case("__builtins__", &[Raised], Both),
    Case("globals()['__builtins__']", &[Raised], Both),
    Case("locals()", &[Raised], Both),
    Case("vars()", &[Raised], Both),
    Case("breakpoint()", &[Raised], Both),
    Case("input()", &[Raised], Both),
    Case("exit(3)", &[Raised], Both),
    Case("raise SystemExit(3)", &[Raised], Both),
    Case("raise KeyboardInterrupt", &[Raised], Both),
    Case("raise BaseException('x')", &[Raised], Both),
    Case("raise MemoryError('mine')", &[Memory, Raised], Both),
    Case("raise TimeoutError('mine')", &[Raised], Both),
    // Regular expressions.
    Case(
        "import re\nre.match(r'(a+)+$', 'a' * 5000 + 'b')",
        ANY,
        Both,
    ),
    Case(
        "import re\nre.match(r'^(\\w+\\s?)*$', 'a' * 5000 + '!')",
        ANY,
        Both,
    ),
    Case(
        "import re\nre.match(r'(a|aa)+\\1$', 'a' * 3000 + 'b')",
        ANY,
        Process,
    ),
    Case(
        "import re\nre.match(r'(?=(a+))(a|a)*b\\1', 'a' * 3000)",
        ANY,
        Process,
    ),
    Case(
        "import re\nre.compile('(' * 10000 + ')' * 10000)",
        &[Raised],
        Both,
    ),
    Case(
        "import re\nre.match('((a{1,100}){1,100}){1,100}', 'a' * 1000)",
        ANY,
        Process,
    ),
    Case(
        "import re\nre.sub('', 'x' * 10 ** 4, 'y' * 10 ** 6)",
        &[Memory, Time, Crashed],
        Process,
    ),
    // Output and errors.
    Case("while True: print('x' * 1000)", &[Time], Both),
    Case("while True: print(end='')", &[Time], Both),
    Case("raise ValueError('x' * 10 ** 7)", &[Raised], Both),
    Case("{}['k' * 10 ** 7]", &[Raised], Both),
    Case("assert 'a' * 10 ** 7 == 'b' * 10 ** 7", &[Raised], Both),
    Case("'x' * 10 ** 7", ANY, Both),
    Case("[list(range(1000))] * 1000", ANY, Both),
    // Source code.
    Case("x = '\\ud800'\nx.encode()", ANY, Both),
    Case("\0", &[Syntax, Raised], Both),
    Case("x = 1\0\nx", &[Syntax, Raised], Both),
    Case("def f(:", &[Syntax], Both),
    Case("'unclosed", &[Syntax], Both),
    Case("\t x = 1\n  y = 2", &[Syntax], Both),
    Case("\u{feff}\u{202e}x = 1", ANY, Both),
];

fn limits() -> ProgramLimits {
    ProgramLimits::new()
        .time(Duration::from_millis(400))
        .memory(192 << 20)
}

async fn check_cases(place: Isolation, stopped_by: StoppedBy) {
    let python = Python::isolated(place).with_limits(limits());
    let mut wrong = Vec::new();
    for Case(code, kinds, _) in CASES
        .iter()
        .filter(|case| stopped_by == Process || case.2 == Both)
    {
        let ran = python.run(*code, json!({})).await;
        let as_it_should = match &ran {
            Ok(ran) => kinds.is_empty() && ran.result.to_string().len() <= 2 * limits().result,
            Err(error) => error.fault().is_some_and(|fault| {
                // On a slow machine, the time limit may be reached before the memory limit.
                let late = fault.kind == Time && kinds.contains(&Memory);
                (kinds.is_empty() || kinds.contains(&fault.kind) || late)
                    && fault.traceback.len() < 6_000
            }),
        };
        if !as_it_should {
            wrong.push(format!("{code}\n    came to {ran:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The earlier programs have changed nothing.
    assert_eq!(python.run("6 * 7", json!({})).await.unwrap().result, 42);
}

#[tokio::test]
async fn process_stops_all_hostile_programs() {
    let [process, _] = places();
    check_cases(process, Process).await;
}

#[tokio::test]
async fn thread_stops_most_hostile_programs() {
    let [_, thread] = places();
    check_cases(thread, Both).await;
}

/// With enough time, the memory limit is reached.
#[tokio::test]
async fn program_above_memory_limit_fails() {
    let long = ProgramLimits::new()
        .time(Duration::from_secs(600))
        .memory(96 << 20);
    for place in places() {
        if place == Isolation::Thread && !cfg!(target_os = "linux") {
            continue;
        }
        let python = Python::isolated(place).with_limits(long);
        for code in [
            "l = []\nwhile True: l.append('x' * 1000)",
            "list(range(10 ** 10))",
            "'a' * 10 ** 9",
        ] {
            let error = python.run(code, json!({})).await.unwrap_err();
            assert_eq!(error.fault().unwrap().kind, Memory, "{code}: {error:?}");
        }
    }
}

#[test]
fn hostile_cases_are_numerous() {
    let mut codes: Vec<&str> = CASES.iter().map(|Case(code, ..)| *code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert!(
        codes.len() == CASES.len() && codes.len() >= 50,
        "{}",
        codes.len()
    );
}

/// Sources that are too long to write literally.
#[tokio::test]
async fn huge_sources_return_error() {
    let sources = [
        ("10 MB", "x = 1\n".repeat(10_000_000 / 6), &[Size][..]),
        (
            "one line",
            format!("x = '{}'", "a".repeat(10_000_000)),
            &[Size],
        ),
        (
            "parentheses",
            format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000)),
            &[Syntax, Raised],
        ),
        (
            "lists",
            format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
            &[Syntax, Raised],
        ),
        ("dicts", "{1:".repeat(80_000), &[Syntax, Raised]),
        (
            "signs",
            format!("{}1", "-".repeat(200_000)),
            &[Syntax, Raised],
        ),
        (
            "nots",
            format!("{}1", "not ".repeat(60_000)),
            &[Syntax, Raised],
        ),
        ("sums", format!("1{}", " + 1".repeat(60_000)), &[]),
        ("ands", format!("1{}", " and 1".repeat(40_000)), &[]),
        ("ifs", format!("1{}", " if 1 else 1".repeat(20_000)), &[]),
        ("powers", format!("1{}", "**1".repeat(80_000)), &[]),
        ("attributes", format!("x{}", ".a".repeat(100_000)), &[]),
        ("calls", format!("print{}", "()".repeat(100_000)), &[]),
        ("items", format!("x{}", "[0]".repeat(80_000)), &[]),
        ("lambdas", format!("{}1", "lambda:".repeat(30_000)), &[]),
        (
            "strings",
            format!("f'{}{}'", "{".repeat(1000), "}".repeat(1000)),
            &[],
        ),
        (
            "names",
            (0..30_000).map(|n| format!("a{n}=1\n")).collect(),
            &[],
        ),
        (
            "blocks",
            (0..400)
                .map(|n| format!("{}if 1:\n", " ".repeat(n)))
                .collect(),
            &[Syntax, Raised, Size],
        ),
        (
            "elifs",
            format!("if 0: pass\n{}", "elif 0: pass\n".repeat(15_000)),
            &[],
        ),
        ("awaits", format!("{}x", "await ".repeat(40_000)), &[]),
        ("arguments", format!("print({})", "1,".repeat(100_000)), &[]),
    ];
    for place in places() {
        let python = Python::isolated(place.clone()).with_limits(limits());
        for (name, source, kinds) in &sources {
            let ran = python.run(source.as_str(), json!({})).await;
            match ran {
                Ok(_) => assert!(kinds.is_empty(), "{name}"),
                Err(error) => {
                    let kind = error.fault().unwrap().kind;
                    assert!(
                        kinds.is_empty() || kinds.contains(&kind),
                        "{name}: {kind:?}"
                    );
                    assert_ne!(kind, Crashed, "{name} in {place:?}: {error:?}");
                }
            }
        }
    }
}
