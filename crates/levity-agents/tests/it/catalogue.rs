//! Tests of agents read from a folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use levity_agents::{Catalogue, CatalogueError, Requirement};
use levity_core::Money;
use levity_dag::Budget;
use tempfile::TempDir;

/// Creates a folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

fn with_config(config: &str) -> TempDir {
    folder(&[
        ("agent_config.yaml", config.as_bytes()),
        ("prompts/x.md", b"Do x.\n"),
    ])
}

/// Returns the error text without the path of the folder.
fn error_text(dir: &Path, error: &CatalogueError) -> String {
    error
        .to_string()
        .replace(&format!("{}/", dir.display()), "")
        .replace(&dir.display().to_string(), "DIR")
}

#[track_caller]
fn check_error(config: &str, expected: &str) {
    let dir = with_config(config);
    let error = Catalogue::load(dir.path()).unwrap_err();
    assert_eq!(error_text(dir.path(), &error), expected, "{config}");
    assert!(!error.is_retryable());
}

const SOURCE: &str = r#"
PlannerAgent:
  prompt_file: "16_NetworkX/prompts/planner_prompt.md"
  model: "gemini"
  mcp_servers: []
  description: "Plans"

CoderAgent:
  prompt_file: "16_NetworkX/prompts/coder.md"
  model: "gemini"
  mcp_servers: ["sandbox", "browser", "rag"]
  description: "Writes code"

NewAgent:
  prompt_file: "16_NetworkX/prompts/new_agent.md"
  model: "ollama"
  mcp_servers: ["browser"]  # Optional
  description: "Agent description"
"#;

fn check_source(agents: &Catalogue) {
    assert_eq!(agents.entries().count(), 11);
    let planner = agents.find("Planner").unwrap();
    assert_eq!(
        (&*planner.name, &*planner.prompt, &*planner.description),
        ("Planner", "Plan it.", "Plans")
    );
    assert_eq!(
        (planner.max_turns, planner.models.len()),
        (4, 1),
        "what was not said is as it was"
    );
    let coder = agents.find("CoderAgent").unwrap();
    assert_eq!(
        (&*coder.prompt, coder.servers.len(), coder.code),
        ("Code it.", 3, Some(Requirement::Optional))
    );
    assert!(
        coder
            .servers
            .iter()
            .all(|server| server.requirement == Requirement::Required)
    );
    let new = agents.find("new").unwrap();
    assert_eq!(
        (&*new.name, &*new.prompt, new.max_turns),
        ("NewAgent", "Be new.", 15)
    );
    assert_eq!(
        (
            new.text_tools,
            new.enabled,
            new.ask_user,
            new.judges,
            new.code
        ),
        (true, true, false, false, None)
    );
}

#[test]
fn older_config_format_is_read() {
    let prompts: [(&str, &[u8]); 3] = [
        ("prompts/planner_prompt.md", b"\xef\xbb\xbfPlan it."),
        ("coder.md", b"Code it."),
        ("16_NetworkX/prompts/new_agent.md", b"Be new."),
    ];
    let below = format!("agents:\n{}", SOURCE.replace('\n', "\n  "));
    for config in [SOURCE, &below] {
        for name in ["agent_config.yaml", "agent_config.yml"] {
            let mut files = prompts.to_vec();
            files.push((name, config.as_bytes()));
            check_source(&Catalogue::load(folder(&files).path()).unwrap());
        }
    }
    let json = r#"{"agents": {
        "PlannerAgent": {"prompt_file": "x/planner_prompt.md", "model": "gemini", "mcp_servers": [],
        "description": "Plans"},
        "CoderAgent": {"prompt_file": "coder.md", "model": "gemini",
        "mcp_servers": ["sandbox", "browser", "rag"]},
        "NewAgent": {"prompt_file": "16_NetworkX/prompts/new_agent.md", "model": "ollama"}
    }}"#;
    let mut files = prompts.to_vec();
    files.push(("agent_config.json", json.as_bytes()));
    check_source(&Catalogue::load(folder(&files).path()).unwrap());
}

#[test]
fn config_with_all_settings_is_read() {
    let dir = with_config(
        "Coder:\n  max_turns: 3\n\
         Lawyer:\n  prompt: |\n    # The lawyer\n    Read the contract.\n  model: [small, \
         large]\n  mcp_servers: laws?\n  tools:\n\
         \x20   - read_file\n    - web_fetch?\n  max_turns: 5\n\
         \x20 budget: {tokens: 50000, money: 0.25, model_calls: 4, tool_calls: 0}\n  timeout: \
         90.5\n  ask_user: true\n  judges: true\n\
         \x20 code: true\n  text_tools: false\n  enabled: false\n  description:\n",
    );
    let agents = Catalogue::load(dir.path()).unwrap();
    let (old, coder) = (Catalogue::defaults(), agents.find("Coder").unwrap());
    let mut expected = old.find("Coder").unwrap().clone();
    expected.max_turns = 3;
    assert_eq!(*coder, expected, "nothing else has changed");

    let lawyer = agents.find("Lawyer").unwrap();
    assert_eq!(&*lawyer.prompt, "# The lawyer\nRead the contract.\n");
    assert_eq!(
        &*lawyer.description, "The lawyer",
        "the first line, since nothing is said"
    );
    assert_eq!(
        lawyer.models.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["small", "large"]
    );
    let named = |list: &[levity_agents::NamedPart]| -> Vec<_> {
        list.iter()
            .map(|named| (named.name.to_string(), named.requirement))
            .collect()
    };
    assert_eq!(
        named(&lawyer.servers),
        [("laws".to_owned(), Requirement::Optional)]
    );
    assert_eq!(
        named(&lawyer.tools),
        [
            ("read_file".to_owned(), Requirement::Required),
            ("web_fetch".to_owned(), Requirement::Optional)
        ]
    );
    let budget = Budget::new()
        .tokens(50_000)
        .money(Money::from_dollars(0.25))
        .model_calls(4)
        .tool_calls(0);
    assert_eq!(
        (lawyer.budget, lawyer.timeout),
        (Some(budget), Some(Duration::from_secs_f64(90.5)))
    );
    assert_eq!(
        (lawyer.max_turns, lawyer.code),
        (5, Some(Requirement::Required))
    );
    assert!(lawyer.ask_user && lawyer.judges && !lawyer.text_tools && !lawyer.enabled);

    let alone = Catalogue::empty().with_folder(dir.path()).unwrap_err();
    assert!(
        error_text(dir.path(), &alone)
            .contains("line 1: agent `Coder`: the agent is new and has no prompt"),
        "{alone}"
    );
}

#[test]
fn performers_exclude_planner_and_disabled_agents() {
    let dir =
        with_config("Thinker: {enabled: false}\nQA: {budget: {tokens: 9}}\nX: {prompt_file: x.md}");
    let agents = Catalogue::load(dir.path()).unwrap();
    let names: Vec<_> = agents
        .performers()
        .map(|(name, _)| name.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "Browser",
            "Coder",
            "Retriever",
            "Summarizer",
            "Distiller",
            "Formatter",
            "Clarification",
            "QA",
            "X"
        ]
    );
    let (_, qa) = agents
        .performers()
        .find(|(name, _)| &**name == "QA")
        .unwrap();
    assert_eq!(
        (qa.judges, qa.budget),
        (true, Some(Budget::new().tokens(9)))
    );
    assert!(
        agents
            .performers()
            .filter(|(_, performer)| performer.judges)
            .count()
            == 1
    );
}

#[test]
fn config_error_names_file_line_and_agent() {
    let at = "`agent_config.yaml`, line";
    for name in ["read_*", "*:write", "**"] {
        check_error(
            &format!("X:\n  prompt: x\n  tools: [\"{name}\"]\n"),
            &format!(
                "{at} 3: agent `X`: `tools` has `{name}`; write a complete name, `*` for all, or \
                    `*:read_only` for all with the read-only hint"
            ),
        );
    }
    check_error(
        "- a",
        &format!(
            "{at} 1: the config is a list, not a map; write `Name:` and its settings below it"
        ),
    );
    check_error(
        "X: {\n",
        &format!(
            "{at} 2: column 1: invalid YAML: while parsing a node, did not find expected node \
             content"
        ),
    );
    check_error(
        "agents: 3",
        &format!(
            "{at} 1: `agents` is a number, not a map; write `Name:` and its settings below it"
        ),
    );
    check_error(
        "agents: {}\nX: {}",
        &format!("{at} 2: the key `X` is next to `agents`; move it below `agents`"),
    );
    check_error(
        "X: 3",
        &format!(
            "{at} 1: agent `X`: it is a number, not a map; write `prompt_file: ..` below its name"
        ),
    );
    check_error(
        "X:",
        &format!(
            "{at} 1: agent `X`: the agent is new and has no prompt; add `prompt_file: ..` or \
                `prompt: ..`"
        ),
    );
    check_error(
        "Codr: {model: x}",
        &format!(
            "{at} 1: agent `Codr`: the agent is new and has no prompt; add `prompt_file: ..` or \
                `prompt: \
                ..`, or did you mean `Coder`?"
        ),
    );
    check_error(
        "X: {prompt: a, prompt_file: b}",
        &format!("{at} 1: agent `X`: it has `prompt` and `prompt_file`; keep one"),
    );
    check_error(
        "X:\n  promt_file: x.md",
        &format!("{at} 2: agent `X`: unknown setting `promt_file`; did you mean `prompt_file`?"),
    );
    check_error(
        "X:\n  prompt: a\n  budget:\n    token: 3",
        &format!("{at} 4: agent `X`: unknown setting `token`; did you mean `tokens`?"),
    );
    check_error(
        "X: {prompt: 3}",
        &format!(
            "{at} 1: agent `X`: `prompt` is a number, not a text; put it in quotes if it is one"
        ),
    );
    check_error(
        "X: {prompt: ' '}",
        &format!("{at} 1: agent `X`: `prompt` is empty; fill it or remove it"),
    );
    check_error(
        "X: {max_turns: 0}",
        &format!("{at} 1: agent `X`: `max_turns` is not a whole number of at least 1; write one"),
    );
    check_error(
        "X: {max_turns: 1.5}",
        &format!("{at} 1: agent `X`: `max_turns` is not a whole number of at least 1; write one"),
    );
    check_error(
        "X: {timeout: -1}",
        &format!("{at} 1: agent `X`: `timeout` is not between 0 and 1e15; write another number"),
    );
    check_error(
        "X: {timeout: 0}",
        &format!(
            "{at} 1: agent `X`: `timeout` is not a duration; write a number of seconds above 0"
        ),
    );
    check_error(
        "X: {enabled: yes}",
        &format!("{at} 1: agent `X`: `enabled` is a text; write `true` or `false`"),
    );
    check_error(
        "X: {code: maybe}",
        &format!("{at} 1: agent `X`: `code` is a text; write `true`, `false` or `optional`"),
    );
    check_error(
        "X: {tools: [a, {}]}",
        &format!("{at} 1: agent `X`: `tools` is a map, not a text; put it in quotes if it is one"),
    );
    check_error(
        "X: {tools: [a, 'a?']}",
        &format!("{at} 1: agent `X`: `tools` names `a` twice; keep one"),
    );
    check_error(
        "X: {mcp_servers: ['?']}",
        &format!("{at} 1: agent `X`: `mcp_servers` names nothing; write a name before the `?`"),
    );
    check_error(
        "X: {budget: 3}",
        &format!(
            "{at} 1: agent `X`: `budget` is a number, not a map; write `budget: {{tokens: 50000}}`"
        ),
    );
    check_error(
        "X: {prompt: a}\nxagent: {prompt: b}",
        &format!("{at} 2: agent `xagent`: it names the same agent as `X`; remove one of them"),
    );
    check_error(
        "'a b': {prompt: a}",
        &format!(
            "{at} 1: agent `a b`: its name must have 1 to 64 letters, digits, `_` and `-`; \
                rename it"
        ),
    );
    check_error(
        "X:\n  prompt: a\n  prompt: b",
        &format!("{at} 3: the key `prompt` occurs twice; keep one"),
    );
}

#[test]
fn unavailable_prompt_returns_error() {
    let at = "`agent_config.yaml`, line 1: agent `X`:";
    check_error(
        "X: {prompt_file: prompts/y.md}",
        &format!(
            "{at} no prompt file `prompts/y.md` in `DIR` or its `prompts`; did you mean \
                `x.md`?"
        ),
    );
    for path in ["../x.md", "/etc/passwd", "prompts/../../x.md"] {
        check_error(
            &format!("X: {{prompt_file: {path}}}"),
            &format!(
                "{at} the prompt file `{path}` leads out of the folder of the config; put the file \
                    into it and name it by a \
                 path below it"
            ),
        );
    }
    check_error(
        "X: {prompt_file: prompts}",
        &format!("{at} the prompt file `prompts`: it is not a regular file; use the path of one"),
    );

    let config: (&str, &[u8]) = ("agent_config.yaml", b"X: {prompt_file: x.md}");
    for (bytes, problem) in [
        (
            b"one\n\xff".to_vec(),
            "the prompt file `x.md`: it is not UTF-8 on line 2; save it as UTF-8",
        ),
        (
            vec![b'x'; (256 << 10) + 1],
            "the prompt file `x.md`: it has more than 256 KiB; shorten it",
        ),
        (
            b" \n".to_vec(),
            "the prompt file `x.md` is empty; write the prompt into it",
        ),
    ] {
        let dir = folder(&[config, ("x.md", &bytes)]);
        let error = Catalogue::load(dir.path()).unwrap_err();
        assert!(matches!(error, CatalogueError::Prompt { .. }));
        assert_eq!(error_text(dir.path(), &error), format!("{at} {problem}"));
    }
}

#[cfg(unix)]
#[test]
fn link_out_of_folder_returns_error() {
    let outside = folder(&[("secret.md", b"secret")]);
    let dir = folder(&[("agent_config.yaml", b"X: {prompt_file: x.md}")]);
    std::os::unix::fs::symlink(outside.path().join("secret.md"), dir.path().join("x.md")).unwrap();
    let error = Catalogue::load(dir.path()).unwrap_err();
    assert!(
        error.to_string().contains("a link out of the folder"),
        "{error}"
    );

    fs::remove_file(dir.path().join("x.md")).unwrap();
    fs::write(dir.path().join("y.md"), "inside").unwrap();
    std::os::unix::fs::symlink("y.md", dir.path().join("x.md")).unwrap();
    assert_eq!(
        &*Catalogue::load(dir.path())
            .unwrap()
            .find("X")
            .unwrap()
            .prompt,
        "inside"
    );
}

#[test]
fn folder_without_single_config_returns_error() {
    let dir = folder(&[("x", b"")]);
    let error = Catalogue::load(dir.path()).unwrap_err();
    assert!(matches!(error, CatalogueError::NoConfig { .. }));
    assert!(
        error.to_string().contains("Catalogue::write_defaults"),
        "{error}"
    );
    for path in ["x", "nowhere"] {
        let error = Catalogue::load(dir.path().join(path)).unwrap_err();
        assert_eq!(
            error_text(dir.path(), &error),
            format!("cannot read `{path}`")
        );
        assert!(std::error::Error::source(&error).is_some());
    }
    let dir = folder(&[("agent_config.yaml", b"{}"), ("agent_config.json", b"{}")]);
    let error = Catalogue::load(dir.path()).unwrap_err();
    assert_eq!(
        error_text(dir.path(), &error),
        "`agent_config.yaml`: there is also a `agent_config.json`; remove one of them"
    );
    let dir = folder(&[("agent_config.yaml", &vec![b'#'; (256 << 10) + 1])]);
    let error = Catalogue::load(dir.path()).unwrap_err();
    assert_eq!(
        error_text(dir.path(), &error),
        "`agent_config.yaml`: it has more than 256 KiB; shorten it"
    );
}

#[test]
fn write_defaults_creates_files_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let agents = dir.path().join("agents");
    let written = Catalogue::write_defaults(&agents).unwrap();
    assert_eq!(written.len(), 11);
    assert_eq!(
        Catalogue::empty().with_folder(&agents).unwrap(),
        Catalogue::defaults()
    );

    fs::write(agents.join("prompts/qa.md"), "Judge.").unwrap();
    fs::remove_file(agents.join("prompts/coder.md")).unwrap();
    assert_eq!(
        Catalogue::write_defaults(&agents).unwrap(),
        [agents.join("prompts/coder.md")]
    );
    assert_eq!(
        &*Catalogue::load(&agents).unwrap().find("QA").unwrap().prompt,
        "Judge."
    );

    fs::rename(
        agents.join("agent_config.yaml"),
        agents.join("agent_config.yml"),
    )
    .unwrap();
    assert!(
        Catalogue::write_defaults(&agents).unwrap().is_empty(),
        "there is a config under another name"
    );
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Catalogue::write_defaults(dir.path().join("file")).unwrap_err();
    assert!(matches!(error, CatalogueError::Write { .. }), "{error}");
}
