use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn vars(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret".to_owned()),
        "HOME" => Some("/home/me".to_owned()),
        "BLANK" => Some(" ".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Config {
    Config::parse(text, vars)
}

/// Returns the one server of this configuration, which must have no problems.
#[track_caller]
fn one(settings: &str) -> ServerConfig {
    let config = parse(&format!(r#"{{"mcpServers": {{"x": {settings}}}}}"#));
    assert!(config.problems().is_empty(), "{config}");
    config.servers()[0].clone()
}

#[track_caller]
fn stdio(server: &ServerConfig) -> &Stdio {
    let Transport::Stdio(stdio) = &server.transport else {
        panic!("{server:?}")
    };
    stdio
}

#[track_caller]
fn http(server: &ServerConfig) -> &Http {
    let Transport::Http(http) = &server.transport else {
        panic!("{server:?}")
    };
    http
}

/// Checks the names of the servers and the problems.
#[track_caller]
fn check(text: &str, names: &[&str], problems: &[&str]) {
    let config = parse(text);
    let found: Vec<_> = config.servers().iter().map(ServerConfig::name).collect();
    assert_eq!(found, names, "{config}");
    let found: Vec<_> = config.problems().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), problems.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(problems) {
        assert!(
            found.contains(expected),
            "{found}\ndoes not contain\n{expected}"
        );
    }
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
}

/// Checks the errors of one server with these settings.
#[track_caller]
fn check_errors(settings: &str, problems: &[&str]) {
    check(
        &format!(r#"{{"mcpServers": {{"x": {settings}, "good": {{"command": "g"}}}}}}"#),
        &["good"],
        problems,
    );
}

/// Checks the warnings of one server with these settings, which is started nevertheless.
#[track_caller]
fn check_warnings(settings: &str, problems: &[&str]) {
    check(
        &format!(r#"{{"mcpServers": {{"x": {settings}}}}}"#),
        &["x"],
        problems,
    );
}

#[test]
fn parse_reads_program_settings() {
    let server = one(r#"{"command": "npx", "args": ["-y", "${HOME}/pkg", 8080],
            "env": {"A": "${TOKEN}", "PORT": 80, "ON": true},
            "cwd": "${HOME}", "type": "stdio", "disabled": false, "description": "files"}"#);
    let stdio = stdio(&server);
    assert_eq!(stdio.command, "npx");
    assert_eq!(stdio.args, ["-y", "/home/me/pkg", "8080"]);
    let env: Vec<_> = stdio
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(env, ["A=s3cret", "ON=true", "PORT=80"]);
    assert_eq!(stdio.cwd.as_deref(), Some("/home/me".as_ref()));
    assert_eq!(stdio.inherit, InheritedEnvironment::Basics);
    assert!(server.is_enabled());
}

#[test]
fn parse_accepts_command_list_with_arguments() {
    let server = one(
        r#"{"type": "local", "command": ["npx", "-y"], "args": ["x"], "environment": {"A": "1"}}"#,
    );
    assert_eq!(
        (&*stdio(&server).command, &stdio(&server).args[..]),
        ("npx", &["-y".to_owned(), "x".to_owned()][..])
    );
    assert_eq!(stdio(&server).env["A"], "1");
}

#[test]
fn parse_reads_url_settings() {
    for settings in [
        r#"{"url": "https://h/mcp?k=${TOKEN}"}"#,
        r#"{"serverUrl": "https://h/mcp?k=${env:TOKEN}"}"#,
        r#"{"httpUrl": "https://h/mcp?k=s3cret"}"#,
        r#"{"type": "http", "transport": "http", "url": "https://h/mcp?k=s3cret"}"#,
        r#"{"transport": "streamable-http", "url": "https://h/mcp?k=s3cret"}"#,
        r#"{"type": "streamableHttp", "url": "https://h/mcp?k=s3cret"}"#,
    ] {
        assert_eq!(
            http(&one(settings)).url,
            "https://h/mcp?k=s3cret",
            "{settings}"
        );
    }
    let server = one(
        r#"{"type": "sse", "url": "HTTP://localhost:1/sse", "headers": {"X-Key": "${TOKEN}"}}"#,
    );
    let Transport::Sse(sse) = &server.transport else {
        panic!("{server:?}")
    };
    assert_eq!(
        (&*sse.url, &*sse.headers["X-Key"]),
        ("HTTP://localhost:1/sse", "s3cret")
    );
}

#[test]
fn place_hides_secrets() {
    let place = |url: &str| ServerConfig::http("x", url).display_target();
    assert_eq!(
        place("https://user:s3cret@h:1/mcp/a?key=s3cret#s3cret"),
        "https://h:1/mcp/a"
    );
    assert_eq!(
        place("https://user:s3cret@h:1/mcp/a@b?key=s3cret"),
        "https://***"
    );
    assert_eq!(place("https://user:1/s3cret@h/mcp"), "https://***");
    assert_eq!(
        place("https://host.example/@name/server/mcp"),
        "https://host.example/@name/server/mcp"
    );
    assert_eq!(place("nonsense?s3cret"), "nonsense");
    assert_eq!(
        place("https://h/api/v1/s/Zm9vYmFyMTIzNDU2Nzg5/mcp/"),
        "https://h/api/v1/s/***/mcp/"
    );
    assert_eq!(
        place("https://h/internationalization-server"),
        "https://h/internationalization-server"
    );
    let server = ServerConfig::stdio("x", "npx").arg("--key=s3cret");
    assert_eq!(
        (server.display_target(), server.transport()),
        ("npx".to_owned(), "stdio")
    );
}

#[test]
fn older_names_of_timeouts_are_read() {
    let server = one(
        r#"{"command": "c", "startLimit": 20, "call_limit": "5m", "idle-limit": 6,
            "probeLimit": 1}"#,
    );
    let timeouts = [
        server.start_timeout,
        server.call_timeout,
        server.idle_timeout,
        server.probe_timeout,
    ];
    assert_eq!(timeouts.map(|time| time.as_secs()), [20, 300, 6, 1]);
}

#[test]
fn parse_reads_every_limit() {
    let server = one(
        r#"{"command": "c", "startTimeout": 20, "call_timeout": "5m", "idle-timeout": "500ms",
            "probeTimeout": 0.5, "pingEvery": "1m", "retries": 2, "maxConcurrent": 3,
            "maxMessage": "1MiB", "allow": ["read_*"],
            "deny": "write", "prefix": "t_", "trust": "full", "inherit": ["SSH_AUTH_SOCK"]}"#,
    );
    let millis = Duration::from_millis;
    assert_eq!(
        (server.start_timeout, server.call_timeout),
        (millis(20_000), millis(300_000))
    );
    assert_eq!(
        (server.idle_timeout, server.probe_timeout),
        (millis(500), millis(500))
    );
    assert_eq!(
        (server.ping_every, server.retries),
        (Some(millis(60_000)), 2)
    );
    assert_eq!((server.max_concurrent, server.max_message), (3, 1 << 20));
    assert_eq!(
        (server.allow.as_deref(), &server.deny[..]),
        (Some(&["read_*".to_owned()][..]), &["write".to_owned()][..])
    );
    assert_eq!(
        (server.prefix.as_deref(), server.trust),
        (Some("t_"), Trust::Full)
    );
    assert_eq!(
        stdio(&server).inherit,
        InheritedEnvironment::Named(vec!["SSH_AUTH_SOCK".to_owned()])
    );
    assert_eq!(
        one(r#"{"command": "c", "pingEvery": false}"#).ping_every,
        None
    );
    assert_eq!(
        stdio(&one(r#"{"command": "c", "inherit": "all"}"#)).inherit,
        InheritedEnvironment::All
    );
}

#[test]
fn parse_accepts_setting_names_of_other_programs() {
    let server = one(r#"{"httpUrl": "http://h", "timeout": 30000, "trust": true,
            "includeTools": ["a"], "excludeTools": ["b"]}"#);
    assert_eq!(
        (server.call_timeout, server.idle_timeout),
        (Duration::from_secs(30), Duration::from_secs(30))
    );
    assert_eq!(
        (server.trust, server.allow, server.deny),
        (
            Trust::Full,
            Some(vec!["a".to_owned()]),
            vec!["b".to_owned()]
        )
    );
    assert_eq!(
        one(r#"{"command": "c", "timeout": 120}"#).call_timeout,
        Duration::from_secs(120)
    );
    assert_eq!(
        one(r#"{"command": "c", "timeout": "2m"}"#).call_timeout,
        Duration::from_secs(120)
    );
    assert_eq!(
        one(r#"{"command": "c", "timeoutMs": 90000}"#).call_timeout,
        Duration::from_secs(90)
    );
    assert_eq!(
        one(r#"{"command": "c", "disabledTools": ["b"]}"#).deny,
        ["b"]
    );
    assert_eq!(
        one(r#"{"command": "c", "startup_timeout_sec": 7}"#).start_timeout,
        Duration::from_secs(7)
    );
    assert!(!one(r#"{"command": "c", "disabled": true}"#).is_enabled());
    assert!(!one(r#"{"command": "c", "enabled": false}"#).is_enabled());
}

#[test]
fn parse_accepts_all_document_formats() {
    for text in [
        r#"{"mcpServers": {"a": {"command": "c"}, "b": {"url": "http://h"}}}"#,
        r#"{"servers": {"a": {"command": "c"}, "b": {"url": "http://h"}}, "inputs": []}"#,
        r#"{"mcp": {"servers": {"a": {"command": "c"}, "b": {"url": "http://h"}}},
            "editor.tabSize": 4}"#,
        r#"{"mcp_servers": [{"name": "a", "command": "c"},
            {"name": "b", "transport": "sse", "url": "http://h"}]}"#,
        r#"{"servers": [{"name": "a", "command": "c", "enabled": true},
            {"name": "b", "url": "http://h"}]}"#,
        r#"[{"name": "a", "transport": "stdio", "command": "c"},
            {"name": "b", "url": "http://h"}]"#,
        r#"{"a": {"command": "c"}, "b": {"url": "http://h"}}"#,
        r#"{"mcpServers": {"a": {"command": "c"}}, "servers": {"b": {"url": "http://h"}}}"#,
        "\u{feff}{ // both\n\"mcpServers\": {\"a\": {\"command\": \"c\",}, /* x */ \"b\": \
            {\"url\": \"http://h\"},},}",
    ] {
        check(text, &["a", "b"], &[]);
    }
    for text in ["{}", "[]", r#"{"mcpServers": {}}"#, r#"{"servers": []}"#] {
        check(text, &[], &[]);
    }
}

#[test]
fn parse_of_invalid_document_reports_problem() {
    check("", &[], &["line 1, column 0: it is not valid JSON: EOF"]);
    check(
        "{\n  \"mcpServers\": {\n    oops",
        &[],
        &["line 3, column 5: it is not valid JSON: key must be a string"],
    );
    check(
        "7",
        &[],
        &["it must be an object or a list, and is a number"],
    );
    check(
        r#"{"mcpServer": {}}"#,
        &[],
        &[
            "it has no `mcpServers` and no `servers`; did you mean `mcpServers` in place of \
                `mcpServer`?",
        ],
    );
    check(
        r#"{"editor": {}}"#,
        &[],
        &["it has no `mcpServers` and no `servers`"],
    );
    check(
        r#"{"mcpServers": "x"}"#,
        &[],
        &["`/mcpServers`: it must be an object or a list of servers, and is a string"],
    );
    check(&"[".repeat(1000), &[], &["recursion limit"]);
    check(
        &" ".repeat((1 << 20) + 1),
        &[],
        &["larger than 1048576 bytes"],
    );
}

#[test]
fn parse_reports_every_problem_and_keeps_valid_servers() {
    check(
        r#"{"mcpServers": {
            "a": {"command": 7.5, "args": "x", "env": ["A"], "retries": -1,
                "startTimeout": "soon", "cwd": null},
            "b": {"url": "ftp://h", "headers": {"X Y": "1", "Z": "a\nb", "W": {}}},
            "c/d": {},
            "e": [],
            "good": {"command": "g"},
            "f": {"command": "f", "args": ["${NOPE}", "${TOKEN}${ALSO}"]}
        }}"#,
        &["good"],
        &[
            "`/mcpServers/a/args`: it must be a list of strings, and is a string",
            "`/mcpServers/a/env`: it must be an object of strings, and is a list",
            "`/mcpServers/a/cwd`: it must be a string, and is null",
            "`/mcpServers/a/startTimeout`: it must be a number of seconds",
            "`/mcpServers/a/retries`: it must be a whole number from 0 to 1000000",
            "`/mcpServers/b/headers/X Y`: this is not a valid header name",
            "`/mcpServers/b/headers/Z`: its value contains a control character",
            "`/mcpServers/b/headers/W`: it must be a string, and is an object",
            "`/mcpServers/b/url`: it must begin with `https://` or `http://`",
            "`/mcpServers/c~1d`: it has neither a `command` nor a `url`",
            "`/mcpServers/e`: it must be an object of settings, and is a list",
            "`/mcpServers/f/args/0`: `NOPE` is not set",
            "`/mcpServers/f/args/1`: `ALSO` is not set",
        ],
    );
}

#[test]
fn parse_of_list_reports_index_of_problem() {
    check(
        r#"[{"command": "a"}, {"name": 3, "command": "a"}, 5,
            {"name": "", "command": "a"}, {"name": "ok", "command": "a"}]"#,
        &["ok"],
        &[
            "`/0`: it has no `name`",
            "`/1/name`: it must be a string, and is a number",
            "`/2`: it must be an object of settings, and is a number",
            "`/3`: its name is empty",
        ],
    );
}

#[test]
fn parse_reports_duplicate_servers_and_settings() {
    check(
        r#"{"mcpServers": {"a": {"command": "1"}, "a": {"command": "2"}},
            "servers": [{"name": "a", "command": "3"}]}"#,
        &["a"],
        &[
            "`/mcpServers/a`: an earlier server is also named `a`",
            "`/servers/0`: an earlier server",
        ],
    );
    // The duplicate is reported even if the first server is invalid.
    check(
        r#"{"mcpServers": {"a": {}, "a": {"command": "2"}}}"#,
        &[],
        &["neither", "an earlier server"],
    );
    check_errors(
        r#"{"command": "a", "command": "b"}"#,
        &["`/mcpServers/x/command`: it appears twice"],
    );
    check_errors(
        r#"{"command": "a", "env": {"A": "1", "A": "2"}}"#,
        &["`/mcpServers/x/env/A`: it appears twice"],
    );
    check_errors(
        r#"{"url": "http://a", "httpUrl": "http://b"}"#,
        &["`/mcpServers/x/httpUrl`: it contradicts `url`"],
    );
}

#[test]
fn parse_rejects_contradictory_settings() {
    check_errors(
        r#"{"command": "a", "url": "http://h"}"#,
        &["choose one with `transport`"],
    );
    check_errors(
        r#"{"transport": "stdio", "url": "http://h"}"#,
        &["it has no effect", "it has no `command`"],
    );
    check_errors(
        r#"{"transport": "http", "command": "c"}"#,
        &["it has no effect", "it has no `url`"],
    );
    check_errors(
        r#"{"transport": "websocket", "url": "http://h"}"#,
        &["`/mcpServers/x/transport`: it is not a known transport; use `stdio`, `http` or `sse`"],
    );
    check_errors(
        r#"{"command": "a", "enabled": true, "disabled": true}"#,
        &["contradict"],
    );
    check_errors(r#"{"command": " "}"#, &["it is empty"]);
    check_errors(r#"{"command": "${BLANK}"}"#, &["it is empty after"]);
    check_errors(r#"{"command": []}"#, &["it is empty"]);
    check_errors(r#"{"command": "a\u0000b"}"#, &["a zero byte"]);
    check_errors(
        r#"{"command": "a", "env": {"A=B": "1"}}"#,
        &["not a valid name of an environment variable"],
    );
    check_errors(r#"{"url": "https://"}"#, &["it is not a valid URL"]);
    check_errors(r#"{"url": "https://a b"}"#, &["it is not a valid URL"]);
    check_errors(
        r#"{"command": "a", "inherit": "some"}"#,
        &["\"basics\", \"all\" or a list"],
    );
    check_errors(
        r#"{"command": "a", "trust": "blind"}"#,
        &["\"cautious\", \"full\""],
    );
    check_errors(
        r#"{"command": "a", "allow": ["x", 1]}"#,
        &["`/mcpServers/x/allow/1`: it must be a string"],
    );
    check_errors(
        r#"{"command": "a", "maxConcurrent": 1.5}"#,
        &["a whole number from 1 to 10000"],
    );
}

#[test]
fn problem_of_unknown_transport_contains_no_value() {
    let config = parse(r#"{"mcpServers": {"x": {"transport": "s3cret", "url": "http://h"}}}"#);
    let problems: Vec<_> = config.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(!problems[0].contains("s3cret"), "{problems:?}");
}

#[test]
fn parse_warns_about_settings_without_effect() {
    check_warnings(
        r#"{"comand": "a", "command": "a"}"#,
        &["`comand` is not a server setting; did you mean `command`?"],
    );
    check_warnings(
        r#"{"command": "a", "weather": "good"}"#,
        &["`weather` is not a server setting"],
    );
    check_warnings(
        r#"{"command": "a", "alwaysAllow": []}"#,
        &["`/mcpServers/x/alwaysAllow`: this setting has no effect"],
    );
    check_warnings(
        r#"{"transport": "stdio", "command": "a", "url": "http://h"}"#,
        &["no effect on a server that levity starts"],
    );
    check_warnings(
        r#"{"transport": "http", "command": "a", "url": "http://h"}"#,
        &["no effect on a server at a URL"],
    );
    check_warnings(r#"{"command": "npx -y x"}"#, &["put arguments into `args`"]);
    check_warnings(
        r#"{"command": "a", "env": {"K": "$GITHUB_TOKEN"}}"#,
        &["only `${NAME}` is expanded"],
    );
    check_warnings(
        r#"{"command": "a", "timeout": 5, "callTimeout": 6}"#,
        &["`/mcpServers/x/callTimeout`: it takes precedence"],
    );
}

#[test]
fn problem_of_disabled_server_is_only_a_warning() {
    let config = parse(r#"{"mcpServers": {"x": {"command": "${NOPE}", "disabled": true}}}"#);
    assert!(config.is_valid() && config.servers().is_empty());
    assert_eq!(config.problems().len(), 1);
    assert!(!parse(r#"{"mcpServers": {"x": {"command": "${NOPE}"}}}"#).is_valid());
}

#[test]
fn url_with_many_variables_is_rejected_or_shown_briefly() {
    let url = |part: &str| {
        let parts = part.repeat(90_000);
        format!(r#"{{"url": "https://h.example/a?q={parts}"}}"#)
    };
    check_errors(
        &url("${A:-}"),
        &["`/mcpServers/x/url`: it contains more than 100 variables; use fewer"],
    );
    // Escaped variables have no limit: they are text.
    assert_eq!(one(&url("$${A}")).display_target(), "https://h.example/a");
}

#[test]
fn problems_beyond_limit_are_counted() {
    let text = format!("[{}]", vec!["1"; 5_000].join(","));
    let config = parse(&text);
    assert_eq!(config.problems().len(), 1_000);
    assert_eq!(
        config.problems()[999].to_string(),
        "there are 4001 more problems"
    );
}

#[test]
fn config_builder_adds_servers_with_unique_names() {
    let config = Config::new()
        .server(ServerConfig::stdio("a", "c"))
        .server(ServerConfig::http("a", "http://h"));
    assert_eq!((config.servers().len(), config.problems().len()), (1, 1));
    assert_eq!(
        Config::from(vec![ServerConfig::stdio("b", "c")]).into_servers()[0].name(),
        "b"
    );
}

#[test]
fn from_env_reads_path_or_inline_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.json");
    std::fs::write(
        &file,
        r#"[{"name": "f", "command": "${TOKEN}"}, {"name": "p", "command": "c", "prefix": ""}]"#,
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let names = |set: &[(&str, &str)]| {
        let own = |name: &str| {
            set.iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let config = Config::from_vars(|name| own(name).or_else(|| vars(name)));
        let prefix =
            |server: &ServerConfig| server.prefix.clone().unwrap_or_else(|| "-".to_owned());
        let servers = config
            .servers()
            .iter()
            .map(|server| format!("{} {}", server.name(), prefix(server)));
        (
            servers.collect::<Vec<_>>().join(","),
            config.problems().len(),
        )
    };
    let check = |set: &[(&str, &str)], expected: &str| {
        assert_eq!(names(set), (expected.to_owned(), 0), "{set:?}");
    };
    check(&[], "");
    check(&[("LEVITY_MCP_SERVERS", path)], "f -,p ");
    check(
        &[(
            "LEVITY_MCP_SERVERS",
            r#" {"servers": {"i": {"command": "${HOME}"}}}"#,
        )],
        "i -",
    );
    check(
        &[("LEVITY_MCP_SERVERS", "[]"), ("MCP_SERVERS_CONFIG", path)],
        "",
    );
    check(
        &[("LEVITY_MCP_SERVERS", " "), ("MCP_SERVERS_CONFIG", path)],
        "f -,p ",
    );
    check(
        &[("MCP_SERVERS_CONFIG", path), ("MCP_TOOL_PREFIX", "t_")],
        "f t_,p ",
    );
    check(
        &[("MCP_SERVERS_CONFIG", path), ("MCP_ENABLED", "False")],
        "",
    );
    check(
        &[("MCP_SERVERS_CONFIG", path), ("MCP_ENABLED", "true")],
        "f -,p ",
    );
    assert_eq!(names(&[("LEVITY_MCP_SERVERS", "/no/such/file")]).1, 1);
}

#[test]
fn from_env_rejects_relative_paths() {
    // The test's working directory has these files, and each would start a program.
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("mcp.json");
    std::fs::write(
        &path,
        r#"{"servers": {"evil": {"command": "sh", "env": {"KEY": "${HOME}"}}}}"#,
    )
    .unwrap();
    let inside = folder.path().file_name().unwrap().to_str().unwrap();
    let plain = format!("{inside}/mcp.json");
    for set in [
        &[("LEVITY_MCP_SERVERS", &*plain)][..],
        &[("LEVITY_MCP_SERVERS", &*format!("./{plain}"))],
        &[("LEVITY_MCP_SERVERS", &*format!("{inside}/../{plain}"))],
        &[("MCP_SERVERS_CONFIG", &*plain)],
        &[("MCP_SERVERS_CONFIG", &*plain), ("MCP_ENABLED", "true")],
        &[("MCP_ENABLED", "yes")],
    ] {
        let own = |name: &str| {
            set.iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let config = Config::from_vars(own);
        assert!(config.servers().is_empty() && !config.is_valid(), "{set:?}");
        let problem = config.problems()[0].to_string();
        assert!(
            problem.contains(set[0].0) && problem.contains("absolute path"),
            "{problem}"
        );
    }
    let whole = path.canonicalize().unwrap();
    let by_path =
        |name: &str| (name == "LEVITY_MCP_SERVERS").then(|| whole.to_str().unwrap().to_owned());
    assert_eq!(
        Config::from_vars(|name| by_path(name).or_else(|| vars(name)))
            .servers()
            .len(),
        1
    );
    assert_eq!(
        Config::load(&path, vars).servers().len(),
        1,
        "a path that the program passes may be relative"
    );
}

#[test]
fn variables_lists_names_that_server_receives() {
    let text = r#"{"servers": {
        "a": {"command": "a", "args": ["${HOME}"], "env": {"A": "${HOME}", "B": "${NONE:-x}"}},
        "b": {"url": "https://h/${HOME}", "headers": {"k": "plain"}},
        "c": {"command": "c", "inherit": ["TOKEN"]},
        "d": {"command": "d", "inherit": "all"},
        "e": {"command": "e"}}}"#;
    let config = Config::parse(text, vars);
    let found: Vec<_> = config
        .servers()
        .iter()
        .map(|server| server.inherited_variables().join(","))
        .collect();
    assert_eq!(found, ["HOME", "HOME", "TOKEN", "*", ""]);
}

#[test]
fn load_of_unreadable_file_reports_problem() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Config::load(&path, vars).problems()[0].to_string()
    };
    assert!(problem("large", &vec![b' '; (1 << 20) + 1]).contains("larger than 1048576 bytes"));
    assert!(problem("latin", b"{\"a\": \"\xff\"}").contains("not UTF-8 at byte 7"));
    assert!(
        Config::load(folder.path(), vars).problems()[0]
            .to_string()
            .contains("it is not a regular file")
    );
    let missing = Config::load(folder.path().join("none"), vars);
    assert!(
        missing.problems()[0].to_string().contains("cannot be read"),
        "{missing}"
    );
}

fn json() -> impl Strategy<Value = String> {
    let keys = "(command|args|env|url|headers|type|timeout|name|disabled|allow|pingEvery|\
                mcpServers|servers|[a-z$/~]{0,6})";
    let texts = prop_oneof![
        "[ -~]{0,12}",
        Just("${A}".to_owned()),
        Just("${".to_owned()),
        Just("30s".to_owned()),
        any::<String>()
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has only finite numbers", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        texts.prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let pair = (keys, inner.clone())
            .prop_map(|(key, value)| format!("{}: {value}", serde_json::to_string(&key).unwrap()));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..6).prop_map(|items| format!("{{{}}}", items.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn parse_of_any_json_does_not_panic(text in json()) {
        let config = Config::parse(&text, vars);
        let named = Config::parse(&format!(r#"{{"mcpServers": {{"s": {text}}}}}"#), vars);
        let listed = Config::parse(
            &format!(r#"[{{"name": "s", "command": "c", "env": {text}}}]"#),
            vars,
        );
        for config in [config, named, listed] {
            // Every server that is left out has a reason.
            prop_assert!(
                !config.servers().is_empty()
                    || config
                        .problems()
                        .iter()
                        .all(|problem| !problem.message.is_empty())
            );
            let shown = format!("{config:?}{config}");
            prop_assert!(!shown.contains("s3cret"));
        }
    }

    #[test]
    fn parse_of_any_text_does_not_panic(text in any::<String>(), cut in 0_usize..80) {
        let _ = Config::parse(&text, vars);
        let whole = r#"{"mcpServers": {"ä": {"command": "c", /* x */ "args": ["${A:-b}"], // y"#;
        let _ = Config::parse(whole.get(..cut).unwrap_or(whole), vars);
    }
}
