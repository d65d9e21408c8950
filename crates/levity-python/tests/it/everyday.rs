//! Tests with typical programs of models, and with code that is known not to work.

use std::time::Duration;

use levity_python::{ProgramFaultKind, ProgramLimits, Python, tools_from_source};
use serde_json::{Value, json};

use crate::support::{places, python};

async fn check(code: &str, expected: Value) {
    let inputs = json!({
        "rows": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 25},
            {"name": "Eve", "age": 51}],
        "text": "The quick brown fox jumps over the lazy dog. The end.",
    });
    match python().run(code, inputs).await {
        Ok(ran) => assert_eq!(ran.result, expected, "{code}"),
        Err(error) => {
            panic!(
                "{code}\n{}",
                error
                    .fault()
                    .map_or(error.to_string(), |fault| fault.traceback.clone())
            )
        }
    }
}

#[tokio::test]
async fn typical_programs_run() {
    for (code, expected) in [
        (
            "sum(row['age'] for row in rows) / len(rows)",
            json!(37.333_333_333_333_336),
        ),
        (
            "sorted(rows, key=lambda r: -r['age'])[0]['name']",
            json!("Eve"),
        ),
        (
            "{r['name']: r['age'] for r in rows if r['age'] > 30}",
            json!({"Ada": 36, "Eve": 51}),
        ),
        ("max(rows, key=lambda r: r['age'])['name']", json!("Eve")),
        (
            "[w for w in text.lower().split() if len(w) > 4]",
            json!(["quick", "brown", "jumps"]),
        ),
        (
            "from collections import Counter\nCounter(text.lower().split()).most_common(1)",
            json!([["the", 3]]),
        ),
        (
            "from collections import defaultdict\nd = defaultdict(list)\nfor r in rows: d[r['age'] \
                > 30].append(r['name'])\nd[True]",
            json!(["Ada", "Eve"]),
        ),
        (
            "import re\nre.sub(r'(\\w)-(\\w)', r'\\2\\1', 'a-b')",
            json!("ba"),
        ),
        (
            "import re\n[m.group() for m in re.finditer(r'[A-Z]\\w+', text)]",
            json!(["The", "The"]),
        ),
        (
            "import json\njson.dumps({'a': [1, None, True]}, indent=1)",
            json!("{\n \"a\": [\n  1,\n  null,\n  true\n ]\n}"),
        ),
        (
            "import json\njson.loads('{\"a\": [1, 2.5]}')['a'][1]",
            json!(2.5),
        ),
        (
            "from datetime import date, timedelta\nstr(date(2024, 2, 28) + timedelta(days=2))",
            json!("2024-03-01"),
        ),
        (
            "from datetime import datetime\ndatetime(2024, 1, 31, 12, 30)",
            json!("2024-01-31T12:30:00"),
        ),
        (
            "from datetime import \
                datetime\ndatetime.fromisoformat('2024-05-06').strftime('%d.%m.%Y')",
            json!("06.05.2024"),
        ),
        ("(squares := [i * i for i in range(5)])[-1]", json!(16)),
        (
            "import math\nround(math.sqrt(2) * math.pi, 4), math.gcd(12, 18)",
            json!([4.4429, 6]),
        ),
        (
            "import itertools\nlist(itertools.chain([1], [2, 3]))",
            json!([1, 2, 3]),
        ),
        (
            "import functools\nfunctools.reduce(lambda a, b: a * b, [1, 2, 3, 4])",
            json!(24),
        ),
        (
            "import base64\nbase64.b64encode(b'hi').decode()",
            json!("aGk="),
        ),
        ("f'{3.14159:.2f} {255:x} {\"a\":>3}'", json!("3.14 ff   a")),
        ("'{} and {}'.format(1, 'b')", json!("1 and b")),
        (
            "a, *b = [1, 2, 3]\n{'a': a, 'b': b}",
            json!({"a": 1, "b": [2, 3]}),
        ),
        (
            "x = [3, 1, 2]\nx.sort(reverse=True)\nx[::-1]",
            json!([1, 2, 3]),
        ),
        (
            "list(zip('ab', [1, 2])), list(enumerate('ab'))",
            json!([[["a", 1], ["b", 2]], [[0, "a"], [1, "b"]]]),
        ),
        (
            "class P:\n    def __init__(self, x):\n        self.x = x\n    def \
                twice(self):\n        return self.x * 2\nP(4).twice()",
            json!(8),
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = \
                2\nP(1)",
            json!({"x": 1, "y": 2}),
        ),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    r = str(e)\nfinally:\n    done = \
                True\n[r, done]",
            json!(["division by zero", true]),
        ),
        (
            "def f(*args, **kw): return [len(args), sorted(kw)]\nf(1, 2, b=1, a=2)",
            json!([2, ["a", "b"]]),
        ),
        (
            "def outer():\n    n = 0\n    def inner():\n        nonlocal n\n        n += \
                1\n        return n\n    inner()\n    return inner()\nouter()",
            json!(2),
        ),
        ("{1, 2} | {3} - {1}, {1, 2} & {2}", json!([[1, 2, 3], [2]])),
        (
            "2 ** 100 % 97, 7 // 2, -7 % 3, 10 ** 30",
            json!([16, 3, 2, "1000000000000000000000000000000"]),
        ),
        ("'äöü'.upper() + '😀'[::-1]", json!("ÄÖÜ😀")),
        (
            "(lambda n: 'even' if n % 2 == 0 else 'odd')(3)",
            json!("odd"),
        ),
        (
            "i = 0\nwhile True:\n    i += 1\n    if i == 5: break\nelse:\n    i = -1\ni",
            json!(5),
        ),
        (
            "import asyncio\nasync def f(n): return n * 2\nasync def main(): return await \
                asyncio.gather(f(1), f(2))\nasyncio.run(main())",
            json!([2, 4]),
        ),
        ("x = 5", json!(null)),
        ("", json!(null)),
        ("print('only')", json!(null)),
    ] {
        check(code, expected).await;
    }
}

/// Code that a model may try and that is not supported: the error says so and suggests an
/// alternative. If one of these starts to work, update the docs.
#[tokio::test]
async fn unsupported_code_returns_hint() {
    for (code, expected_hint) in [
        (
            "def g():\n    yield 1\nlist(g())",
            "Hint: this interpreter supports only a part of Python",
        ),
        (
            "match 1:\n    case 1: pass",
            "Hint: this interpreter supports only a part of Python",
        ),
        (
            "x = 1\ndel x",
            "Hint: this interpreter supports only a part of Python",
        ),
        (
            "class A: pass\nclass B(A): pass",
            "Hint: this interpreter supports only a part of Python",
        ),
        (
            "class E(Exception): pass",
            "Hint: this interpreter supports only a part of Python",
        ),
        ("'%d' % 3", "Hint: there is no `%` formatting here"),
        ("import requests", "Hint: the modules here are"),
        ("import random", "Hint: the modules here are"),
        ("open('x')", "this Python has no files"),
        ("eval('1')", "Hint: this function does not exist here"),
        (
            "class V:\n    def __add__(self, o): return 1\nV() + V()",
            "TypeError",
        ),
        ("{'a': 1} | {'b': 2}", "TypeError"),
        ("sorted(['b'], key=str.lower)", "AttributeError"),
        ("import re\nre.sub('a', lambda m: 'b', 'a')", "TypeError"),
    ] {
        let error = python().run(code, json!({})).await.unwrap_err();
        let traceback = &error.fault().unwrap().traceback;
        assert!(traceback.contains(expected_hint), "{code}: {traceback}");
    }
}

#[tokio::test]
async fn traceback_names_function_and_line() {
    let code = "def half(n):\n    return 10 / n\n\nfor i in [2, 0]:\n    half(i)\n";
    for place in places() {
        let error = Python::isolated(place)
            .run(code, json!({}))
            .await
            .unwrap_err();
        let fault = error.fault().unwrap();
        assert_eq!(
            (fault.kind, fault.line),
            (ProgramFaultKind::Raised, Some(2))
        );
        for line in [
            "line 5, in <module>",
            "half(i)",
            "line 2, in half",
            "return 10 / n",
            "ZeroDivisionError",
        ] {
            assert!(
                fault.traceback.contains(line),
                "{line}: {}",
                fault.traceback
            );
        }
    }
    let error = python()
        .run("x = 1\nif x\n    y", json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        (error.fault().unwrap().kind, error.fault().unwrap().line),
        (ProgramFaultKind::Syntax, Some(2))
    );
}

#[tokio::test]
async fn long_output_and_result_are_cut_with_note() {
    for place in places() {
        let python =
            Python::isolated(place).with_limits(ProgramLimits::new().output(100).result(100));
        let ran = python
            .run(
                "for i in range(1000): print(i)\nlist(range(1000))",
                json!({}),
            )
            .await
            .unwrap();
        assert!(
            ran.output.starts_with("0\n1\n") && ran.output.ends_with("998\n999\n"),
            "{}",
            ran.output
        );
        assert!(ran.output.contains("bytes left out"), "{}", ran.output);
        let result = ran.result.as_str().unwrap();
        assert!(
            result.starts_with("[0,1,2") && result.contains("cut: the result has 3891 bytes"),
            "{result}"
        );
    }
}

#[tokio::test]
async fn dropping_future_stops_program() {
    for place in places() {
        let python = Python::isolated(place)
            .with_limits(ProgramLimits::new().time(Duration::from_secs(3600)));
        let endless = python.run("while True: pass", json!({}));
        tokio::select! {
            biased;
            ran = endless => panic!("{ran:?}"),
            () = tokio::task::yield_now() => {}
        }
        // The permit is released at once.
        assert_eq!(python.run("1 + 1", json!({})).await.unwrap().result, 2);
    }
}

#[test]
fn run_blocking_returns_result() {
    for place in places() {
        assert_eq!(
            Python::isolated(place)
                .run_blocking("x * 2", json!({"x": 4}))
                .unwrap()
                .result,
            8
        );
    }
}

#[tokio::test]
async fn missing_worker_returns_error() {
    let python = Python::isolated(levity_python::Isolation::Process("/no/such/worker".into()));
    assert!(python.is_isolated());
    let error = python.run("1", json!({})).await.unwrap_err();
    assert!(
        error.to_string().starts_with("cannot start a worker"),
        "{error}"
    );
    // A program that is not a worker fails as well.
    #[cfg(unix)]
    {
        let python = Python::isolated(levity_python::Isolation::Process("/bin/true".into()));
        let error = python.run("1", json!({})).await.unwrap_err();
        assert_eq!(error.fault().unwrap().kind, ProgramFaultKind::Crashed);
    }
}

#[tokio::test]
async fn maximum_limits_are_accepted() {
    let max = usize::MAX;
    let largest = ProgramLimits::new()
        .time(Duration::MAX)
        .memory(max)
        .recursion(max)
        .calls(max);
    let largest = largest.output(max).result(max).source(max).snapshot(max);
    for place in places() {
        let python = Python::isolated(place).with_limits(largest);
        assert_eq!(
            python
                .run("print('x')\n6 * 7", json!({}))
                .await
                .unwrap()
                .result,
            42
        );
        assert_eq!(
            tools_from_source("a.py", "def f(): pass\n", &python)
                .unwrap()
                .tools
                .len(),
            1
        );
    }
}

/// The thread that holds the permit is the one that would have to resume it.
#[test]
fn blocking_thread_does_not_deadlock_on_itself() {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let python = python().with_limits(ProgramLimits::new().time(Duration::from_millis(300)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let result = runtime.block_on(async {
            let mut others = tokio::task::JoinSet::new();
            for _ in 0..std::thread::available_parallelism().unwrap().get() {
                let python = python.clone();
                others.spawn(async move { python.run("while True: pass", json!({})).await });
            }
            tokio::task::yield_now().await;
            python.run_blocking("6 * 7", json!({})).unwrap().result
        });
        done.send(result).unwrap();
    });
    assert_eq!(
        wait.recv_timeout(Duration::from_secs(60))
            .expect("it waits for itself"),
        42
    );
}
