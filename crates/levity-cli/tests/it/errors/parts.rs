//! Situations of tools, MCP servers, servers and bridges.

use super::{HELLO, Row, Server};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "workspace is a file",
        "levity run -q hi --script hello.json --workspace a.txt",
        2,
        "`a.txt` is not a folder or goes through a file; use the path of a folder",
    )
    .files(&[HELLO, ("a.txt", "")])
    .documented(),
    Row::new(
        "missing workspace",
        "levity run -q hi --script hello.json --workspace nowhere",
        2,
        "`nowhere` does not exist; list its parent folder to see what is there",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "sandbox of a file",
        "levity sandbox hello.json",
        1,
        "`hello.json` is not a folder or goes through a file; use the path of a folder",
    )
    .files(&[HELLO]),
    Row::new(
        "tools folder is a file",
        "levity run -q hi --script hello.json --tools hello.json",
        2,
        "the tools of `hello.json` cannot be loaded: it is not a folder; use the path of a \
         folder",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "missing tools folder",
        "levity run -q hi --script hello.json --tools nowhere",
        2,
        "the tools of `nowhere` cannot be loaded: no such file or folder; check the path",
    )
    .files(&[HELLO]),
    Row::new(
        "faulty Python tool",
        "levity run hi --script hello.json --tools tools | grep add.py >&2",
        0,
        "(`add.py`: line 2: unexpected EOF while parsing)",
    )
    .files(&[HELLO, ("tools/add.py", "def add(a:\n")])
    .documented(),
    Row::new(
        "logs folder is a file",
        "levity run -q hi --script hello.json --logs hello.json",
        2,
        "cannot use the folder `hello.json` for logs; choose one that is writable: a file has \
         this name",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "cache folder is a file",
        "levity run -q hi --script hello.json --cache=hello.json",
        2,
        "cannot store replies in `hello.json`: a file has this name; choose another folder \
         with `--cache`",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "program of MCP server is missing",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: its program `levity-no-such-program` was not found in `PATH`; install \
         it or set `command` to its full path",
    )
    .files(&[(
        "a.json",
        r#"{"mcpServers": {"a": {"command": "levity-no-such-program"}}}"#,
    )])
    .documented(),
    Row::new(
        "MCP server crashes",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: the connection ended before the server was ready; its process ended \
         with code 1 and wrote nothing to stderr; run its command by hand",
    )
    .files(&[(
        "a.json",
        r#"{"mcpServers": {"a": {"command": "sh", "args": ["-c", "read line; exit 1"]}}}"#,
    )])
    .documented(),
    Row::new(
        "MCP server crashes with a message",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: the connection ended before the server was ready; its process ended \
         with code 3; the end of its stderr: boom",
    )
    .files(&[(
        "a.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"args\": [\"-c\", \"read line; \
             echo boom >&2; exit 3\"]}}}",
    )])
    .documented(),
    Row::new(
        "MCP server hangs",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: it was not ready within 300ms; its process still runs and wrote \
         nothing to stderr; run its command by hand",
    )
    .files(&[(
        "a.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sleep\", \"args\": [\"30\"], \
             \"startTimeout\": \"300ms\"}}}",
    )])
    .documented(),
    Row::new(
        "MCP server does not speak MCP",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: it was not ready within 300ms; its process ended with code 0; the end \
         of its stderr: hello",
    )
    .files(&[(
        "a.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"args\": [\"-c\", \"echo hello; \
             cat >/dev/null\"],\n\"startTimeout\": \"300ms\"}}}",
    )])
    .documented(),
    Row::new(
        "MCP server is down",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: cannot be reached: connection refused; is the server running?",
    )
    .files(&[(
        "a.json",
        r#"{"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp"}}}"#,
    )])
    .documented(),
    Row::new(
        "MCP server has another address",
        "levity mcp tools --config a.json",
        1,
        "MCP server `a`: it responded with HTTP 404; check its URL; the fallback to the older \
         HTTP with server-sent events failed too: it responded with HTTP 404; check its URL",
    )
    .files(&[("a.json", r#"{"mcpServers": {"a": {"url": "{url}/mcp"}}}"#)])
    .server(Server::Reply("404 X", "text/plain", "no"))
    .documented(),
    Row::new(
        "MCP config with unknown setting",
        "levity mcp list --config a.json",
        0,
        "`a.json`: `/mcpServers/a/comand`: `comand` is not a server setting; did you mean \
         `command`?",
    )
    .files(&[(
        "a.json",
        r#"{"mcpServers": {"a": {"comand": "x", "url": "http://127.0.0.1:1"}}}"#,
    )])
    .documented(),
    Row::new(
        "MCP server without command",
        "levity mcp tools --config a.json",
        1,
        "`a.json`: `/mcpServers/a`: it has neither a `command` nor a `url`; add one",
    )
    .files(&[("a.json", r#"{"mcpServers": {"a": {}}}"#)])
    .documented(),
    Row::new(
        "unset variable in MCP config",
        "levity mcp tools --config a.json",
        1,
        "`a.json`: `/mcpServers/a/command`: `NOPE` is not set; set it, or write \
         `${NOPE:-default}`",
    )
    .files(&[("a.json", r#"{"mcpServers": {"a": {"command": "${NOPE}"}}}"#)])
    .documented(),
    Row::new(
        "MCP config is not JSON",
        "levity mcp tools --config a.json",
        1,
        "`a.json`: line 2, column 1: it is not valid JSON: expected value",
    )
    .files(&[("a.json", "{\"mcpServers\": {\"a\": \n}}}")])
    .documented(),
    Row::new(
        "unknown MCP server",
        "levity mcp call b tool --config a.json",
        2,
        "there is no server `b`; the config has `a`",
    )
    .files(&[("a.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#)])
    .documented(),
    Row::new(
        "arguments of MCP tool are not JSON",
        "levity mcp call a tool nothing --config a.json",
        2,
        "the arguments are not valid JSON: expected ident at line 1 column 2; write an object, \
         such as `{}`",
    )
    .files(&[("a.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#)])
    .documented(),
    Row::new(
        "MCP config without servers",
        "levity mcp tools --config a.json",
        1,
        "`a.json`: it has no `mcpServers` and no `servers`; add one",
    )
    .files(&[("a.json", r#"{"other": 1}"#)]),
    Row::new(
        "empty MCP config",
        "levity mcp tools --config a.json",
        2,
        "`a.json` names no servers; add at least one",
    )
    .files(&[("a.json", r#"{"mcpServers": {}}"#)]),
    Row::new(
        "missing MCP config",
        "levity mcp tools --config nowhere.json",
        1,
        "`nowhere.json` cannot be read: no such file or folder; check the path",
    )
    .documented(),
    Row::new(
        "MCP config is a folder",
        "levity mcp tools --config .",
        1,
        "`.` cannot be read: it is not a regular file; use the path of one",
    ),
    Row::new(
        "MCP config is not UTF-8",
        "printf 'caf\\351' > a.json; levity mcp tools --config a.json",
        1,
        "`a.json` cannot be read: it is not UTF-8 at byte 3; save it as UTF-8",
    ),
    Row::new(
        "no MCP config",
        "levity mcp tools",
        2,
        "there are no servers; name a file with `--config` or in `LEVITY_MCP_SERVERS`",
    )
    .documented(),
    Row::new(
        "MCP config of a run is missing",
        "levity run -q hi --script hello.json --mcp nowhere.json",
        2,
        "`nowhere.json` names no server that levity can start; check it with `levity mcp list`",
    )
    .files(&[HELLO])
    .notes(1),
    Row::new(
        "address in use",
        "printf 0123456789abcdef > token; chmod 600 token; levity serve http --script \
         hello.json --journal j --token-file token --listen {server}",
        2,
        "cannot listen on `{server}`: the address is in use; choose another address, or stop \
         the process that uses it",
    )
    .files(&[HELLO])
    .server(Server::Close)
    .notes(1)
    .documented(),
    Row::new(
        "invalid address",
        "printf 0123456789abcdef > token; chmod 600 token; levity serve http --script \
         hello.json --journal j --token-file token --listen nonsense",
        2,
        "cannot listen on `nonsense`: invalid socket address; choose another address, or stop \
         the process that uses it",
    )
    .files(&[HELLO])
    .notes(1),
    Row::new(
        "reachable without encryption",
        "printf 0123456789abcdef > token; chmod 600 token; levity serve http --script \
         hello.json --journal j --token-file token --listen 0.0.0.0:0",
        2,
        "`listen` 0.0.0.0:{port} is reachable from other machines without encryption, so the \
         network can read tokens and all messages; set `--tls-cert` and `--tls-key`, listen on \
         127.0.0.1, or pass `--allow-plaintext` if a proxy encrypts",
    )
    .files(&[HELLO])
    .notes(1)
    .documented(),
    Row::new(
        "missing certificate",
        "printf 0123456789abcdef > token; chmod 600 token; levity serve http --script \
         hello.json --journal j --token-file token --listen 127.0.0.1:0 --tls-cert nowhere \
         --tls-key nowhere",
        2,
        "cannot use the TLS file `nowhere`: I/O error: no such file or folder; check the path",
    )
    .files(&[HELLO])
    .notes(1)
    .documented(),
    Row::new(
        "short token",
        "printf short > token; chmod 600 token; levity serve http --script hello.json \
         --journal j --token-file token --listen 127.0.0.1:0",
        2,
        "`token`: the token is too short; use 16 characters or more",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "token that others can read",
        "printf 0123456789abcdef > token; chmod 644 token; levity serve http --script \
         hello.json --journal j --token-file token --listen 127.0.0.1:0",
        2,
        "users other than the owner can read the token file `token`; run chmod 600 `token`",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "missing named tokens",
        "levity serve http --script hello.json --journal j --listen 127.0.0.1:0 --named-tokens \
         nowhere",
        2,
        "cannot read the tokens file `nowhere`: no such file or folder; check the path",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "access log is a folder",
        "printf 0123456789abcdef > token; chmod 600 token; levity serve http --script \
         hello.json --journal j --token-file token --listen 127.0.0.1:0 --access-log .",
        2,
        "cannot open the access log `.`: it is a folder; use the path of a file",
    )
    .files(&[HELLO])
    .notes(1),
    Row::new(
        "missing prompts",
        "levity serve mcp --script hello.json --prompts nowhere",
        2,
        "cannot read `nowhere`: no such file or folder; check the path",
    )
    .files(&[HELLO]),
    Row::new(
        "prompt of server is not UTF-8",
        "mkdir p; printf 'caf\\351' > p/a.md; levity serve mcp --script hello.json --prompts p",
        2,
        "cannot read `p/a.md`: it is not UTF-8; save it as UTF-8",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "facts of another program",
        "levity serve mcp --script hello.json --facts hello.json --scope user:a",
        2,
        "the facts `hello.json` cannot be read and was left unchanged: it is not an SQLite \
         file; choose another path",
    )
    .files(&[HELLO]),
    Row::new(
        "bridge without folder",
        "levity bridge host --listen 127.0.0.1:0 --script hello.json",
        2,
        "a host requires a folder; name it with `--workspace DIR`",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "address of bridge in use",
        "printf 0123456789abcdef > token; chmod 600 token; levity bridge host --listen \
         {server} --workspace w --token-file token --script hello.json",
        1,
        "cannot listen on `{server}`: the address is in use; choose another address, or stop \
         the process that uses it",
    )
    .files(&[HELLO, ("w/a", "")])
    .server(Server::Close)
    .notes(1)
    .documented(),
    Row::new(
        "bridge to another machine",
        "levity bridge stdio --url ws://example.com:1",
        2,
        "the host's URL must be like `ws://127.0.0.1:8888`: it is on another machine, and the \
         connection is not encrypted; use a tunnel such as `ssh -L`, or allow remote hosts \
         explicitly",
    )
    .documented(),
    Row::new(
        "bridge to an invalid address",
        "levity bridge stdio --url nonsense",
        2,
        "the host's URL must be like `ws://127.0.0.1:8888`: it does not begin with `ws://`",
    ),
    Row::new(
        "bridge host unreachable",
        "printf 0123456789abcdef > token; chmod 600 token; levity mcp call b list_files '{}' \
         --config b.json",
        1,
        "MCP server `b`: `list_files` failed: no bridge host answers at ws://127.0.0.1:1/ \
         (connection refused); start one with `levity bridge host --workspace DIR`, or set its \
         address with `--url`",
    )
    .files(&[
        HELLO,
        (
            "b.json",
            "{\"mcpServers\": {\"b\": {\"command\": \"levity\",\n\"args\": [\"bridge\", \
             \"stdio\", \"--url\", \"ws://127.0.0.1:1\", \"--token-file\", \"{dir}/token\"]}}}",
        ),
        ("w/a", ""),
    ])
    .documented(),
    Row::new(
        "bridge with a wrong token",
        "printf 0123456789abcdef > token; chmod 600 token; printf fedcba9876543210 > other; \
         chmod 600 other\nlevity bridge host --listen 127.0.0.1:0 --workspace w --token-file \
         token \\\n--script hello.json > out 2>&1 & pid=$!\nuntil grep -qs ready out; do sleep \
         0.05; done\nurl=$(sed -n 's/^listening on //p' out); sed -i \"s|URL|$url|\" \
         b.json\nlevity mcp call b list_files '{}' --config b.json; code=$?\nkill $pid; exit \
         $code",
        1,
        "MCP server `b`: `list_files` failed: the server at ws://127.0.0.1:{port}/ does not \
         have the token of your host, so nothing was sent to it; it may be another program, or \
         a host with another token: pass the token that the host printed when it was created, \
         with `--token-file` or `LEVITY_BRIDGE_TOKEN`",
    )
    .files(&[
        HELLO,
        (
            "b.json",
            "{\"mcpServers\": {\"b\": {\"command\": \"levity\",\n\"args\": [\"bridge\", \
             \"stdio\", \"--url\", \"URL\", \"--token-file\", \"{dir}/other\"]}}}",
        ),
        ("w/a", ""),
    ])
    .documented(),
];
