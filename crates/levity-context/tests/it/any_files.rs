//! Property test: the budget holds for files with any names and content.

use levity_context::ContextFiles;
use levity_core::ContextBlock;
use proptest::prelude::*;

use crate::{TestFolder, blocks};

fn name() -> impl Strategy<Value = String> {
    let folder = prop::option::of("[a-c]");
    let file = prop_oneof!["[a-e]", "[^/\0]{1,12}", "\\PC{1,40}", "--- x ---\n"];
    (folder, file).prop_filter_map("a name of a file", |(folder, file)| {
        let path = folder.map_or(format!("{file}.md"), |folder| format!("{folder}/{file}.md"));
        (file.len() < 200 && !file.contains(['/', '\0'])).then_some(path)
    })
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600),
        "(\\PC|\r\n|\n){0,300}".prop_map(String::into_bytes),
        (1usize..20_000).prop_map(|size| vec![b'x'; size]),
        Just(b"\xef\xbb\xbf--- a.md ---\n".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn blocks_of_any_files_fit_budget(
        files in prop::collection::vec((name(), contents()), 0..12),
        agents in prop::option::of(contents()),
        budget in prop_oneof![0usize..300, 0usize..20_000, Just(usize::MAX)],
        max_files in prop_oneof![Just(100usize), 0usize..5],
    ) {
        let place = TestFolder::new();
        for (name, contents) in &files {
            place.write(&format!(".context/{name}"), contents);
        }
        if let Some(contents) = &agents {
            place.write("a/AGENTS.md", contents);
        }
        place.write("a/x", "");
        let source = ContextFiles::open(place.path())
            .unwrap()
            .nested()
            .working_dir("a")
            .max_files(max_files);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(blocks(&source, budget));
        let tokens: usize = found.iter().map(ContextBlock::tokens).sum();
        prop_assert!(tokens <= budget, "{tokens} of {budget}: {found:?}");
        prop_assert_eq!(&found, &runtime.block_on(blocks(&source, budget)));
        let mut names: Vec<_> = found.iter().map(|block| &block.name).collect();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), found.len());
        if budget > 100_000 && max_files > 20 {
            let seen: std::collections::BTreeSet<_> = files
                .iter()
                .filter(|(name, _)| !name.starts_with('.'))
                .map(|(name, _)| name)
                .filter(|name| !name.contains("/."))
                .collect();
            let agents = usize::from(agents.is_some());
            prop_assert_eq!(found.len(), seen.len() + agents, "{:?} {:?}", found, seen);
        }
    }
}
