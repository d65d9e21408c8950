//! A program that reads files in formats such as PDF in processes of its own, and prints their
//! passages. The first call in `main` makes that possible.
//!
//! Arguments: the folder, the question, and the file of the index; without one, the index is in
//! memory.

use levity_docs::{DocumentIndex, FolderUpdate, FormatReader, SearchOptions};
use levity_sandbox::Workspace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    FormatReader::serve_if_child();
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".into());
    let question = arguments.next().unwrap_or_else(|| "water".into());
    let index = match arguments.next() {
        Some(file) => DocumentIndex::open(file)?,
        None => DocumentIndex::in_memory()?,
    };
    tokio::runtime::Runtime::new()?.block_on(search(&index, &folder, &question))
}

#[expect(clippy::print_stdout, reason = "this is a program")]
async fn search(
    index: &DocumentIndex,
    folder: &str,
    question: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let workspace = Workspace::builder(folder).read_only().build()?;
    let reader = FormatReader::new()?;
    let report = FolderUpdate::new(index, &workspace)
        .reader(&reader)
        .run()
        .await?;
    println!(
        "{} documents, {} files left out",
        report.added,
        report.skipped.len()
    );
    for passage in index
        .search(question, &SearchOptions::new())
        .await?
        .passages
    {
        println!("{}: {}", passage.place(), passage.text.trim());
    }
    Ok(())
}
