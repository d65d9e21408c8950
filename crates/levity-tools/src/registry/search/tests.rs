use serde_json::json;

use super::*;

fn tool(name: &str, description: &str, arguments: &[&str]) -> Arc<ToolSpec> {
    let properties: serde_json::Map<_, _> = arguments
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    Arc::new(
        ToolSpec::new(name, description)
            .with_input(json!({"type": "object", "properties": properties})),
    )
}

fn shelf() -> Vec<Arc<ToolSpec>> {
    vec![
        tool(
            "fs_read_file",
            "Reads the complete contents of a file.",
            &["path"],
        ),
        tool(
            "fs_write_file",
            "Writes a file, and replaces what was there.",
            &["path", "content"],
        ),
        tool(
            "git_commit",
            "Records changes to the repository.",
            &["repo_path", "message"],
        ),
        tool("git_log", "Shows the commits.", &["repo_path", "max_count"]),
        tool(
            "createIssue",
            "Opens a ticket in the tracker.",
            &["title", "assigneeName"],
        ),
        tool("HTTPFetch", "Gets a page of the web.", &["url"]),
        tool(
            "convert_time",
            "Converts a time between zones.",
            &["source_timezone", "target_timezone"],
        ),
    ]
}

#[track_caller]
fn check(query: &str, expected: &[&str]) {
    let specs = shelf();
    let best = Index::new(&specs).best(query, 2);
    let names: Vec<&str> = best.iter().map(|at| &*specs[*at].name).collect();
    assert_eq!(names, expected, "{query}");
}

#[test]
fn tools_are_found_by_name_argument_and_description() {
    check("read file", &["fs_read_file", "fs_write_file"]);
    check("readFiles", &["fs_read_file", "fs_write_file"]);
    check("FS_WRITE_FILE", &["fs_write_file", "fs_read_file"]);
    check("commit", &["git_commit", "git_log"]);
    check("http", &["HTTPFetch"]);
    check("a web page", &["HTTPFetch"]);
    check("tracker tickets", &["createIssue"]);
    check("assignee", &["createIssue"]);
    check("time zone", &["convert_time"]);
    check("repo", &["git_commit", "git_log"]);
    check("repositories", &["git_commit"]);
}

#[test]
fn unknown_word_finds_no_tool() {
    check("", &[]);
    check("the of a", &[]);
    check("quantum", &[]);
    check("!!! ???", &[]);
    check(&"x ".repeat(1_000_000), &[]);
    assert!(Index::new(&[]).best("anything", 5).is_empty());
}

#[test]
fn equal_matches_keep_their_order() {
    let specs: Vec<_> = (0..5)
        .map(|n| tool(&format!("t{n}"), "Mends a roof.", &[]))
        .collect();
    assert_eq!(Index::new(&specs).best("roof", 3), [0, 1, 2]);
}

#[test]
fn names_are_split_into_words() {
    let all = |name| words(name).collect::<Vec<_>>();
    assert_eq!(
        all("getHTTPResponse2Body"),
        ["get", "http", "response2", "body"]
    );
    assert_eq!(all("snake_case-and.dots"), ["snake", "case", "dot"]);
    assert_eq!(all("queries classes status"), ["query", "classe", "status"]);
    assert_eq!(all("Überprüfung läuft"), ["überprüfung", "läuft"]);
}
