//! Tests of files in formats such as PDF, which processes of their own read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use levity_docs::{DocumentIndex, FolderReport, FolderUpdate, FormatReader, SearchOptions};
use levity_sandbox::Workspace;

/// Returns the example that reads files.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap();
    built.join("examples/format_reader")
}

fn reader() -> FormatReader {
    FormatReader::builder().program(program()).build().unwrap()
}

fn file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
    fs::read(format!("{folder}{name}")).unwrap()
}

fn copy(folder: &Path, names: &[&str]) {
    for name in names {
        fs::write(folder.join(name), file(name)).unwrap();
    }
}

async fn update(index: &DocumentIndex, folder: &Path, reader: &FormatReader) -> FolderReport {
    let workspace = Workspace::builder(folder).read_only().build().unwrap();
    let update = FolderUpdate::new(index, &workspace).reader(reader);
    update.run().await.unwrap()
}

async fn names(index: &DocumentIndex) -> Vec<String> {
    let documents = index.documents("", 1_000).await.unwrap();
    documents.into_iter().map(|info| info.name).collect()
}

fn left_out(report: &FolderReport) -> Vec<(&str, &str)> {
    let files = report.skipped.iter();
    files
        .map(|file| (file.path.as_str(), file.reason.as_str()))
        .collect()
}

#[tokio::test]
async fn passages_of_formats_have_pages_and_rows() {
    let folder = tempfile::tempdir().unwrap();
    copy(
        folder.path(),
        &["tides.pdf", "tides.odt", "tides.xlsx", "tides.epub"],
    );
    fs::write(
        folder.path().join("page.html"),
        "<h1>Moon</h1><p>Spring tides.",
    )
    .unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    let report = update(&index, folder.path(), &reader()).await;
    assert_eq!(left_out(&report), []);
    assert_eq!(
        names(&index).await,
        [
            "page.html",
            "tides.epub",
            "tides.odt",
            "tides.pdf",
            "tides.xlsx/Notes",
            "tides.xlsx/Tides"
        ]
    );
    let place = async |question: &str, path: &str| {
        let options = SearchOptions::new().path(path);
        let found = index.search(question, &options).await.unwrap();
        found.passages[0].place()
    };
    assert_eq!(
        place("low water at noon", "*.pdf").await,
        "tides.pdf, page 2"
    );
    assert_eq!(
        place("Tuesday", "tides.xlsx/*").await,
        "tides.xlsx/Tides, lines 1 to 4"
    );
    let found = index
        .search("spring tides", &SearchOptions::new())
        .await
        .unwrap();
    assert_eq!(found.passages[0].context, "Moon");
}

#[tokio::test]
async fn update_reads_changed_files_and_removes_missing_ones() {
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), &["tides.pdf", "tides.xlsx", "encrypted.pdf"]);
    let index = DocumentIndex::in_memory().unwrap();
    let first = update(&index, folder.path(), &reader()).await;
    let reason = "it is encrypted; save it without a password to index it";
    assert_eq!(
        (first.added, left_out(&first)),
        (3, vec![("encrypted.pdf", reason)])
    );

    // This program can read no file.
    let broken = FormatReader::builder()
        .program("/bin/false")
        .build()
        .unwrap();
    let second = update(&index, folder.path(), &broken).await;
    assert_eq!((second.added, second.unchanged, second.removed), (0, 2, 0));
    assert_eq!(left_out(&second), [("encrypted.pdf", reason)]);

    // A document that a program has removed comes back, as for plain text.
    index.remove("tides.pdf").await.unwrap();
    let restored = update(&index, folder.path(), &reader()).await;
    assert_eq!((restored.added, restored.unchanged), (1, 1));

    // A workbook becomes a text document, and a file with the name of another one.
    fs::write(folder.path().join("tides.xlsx"), file("tides.odt")).unwrap();
    fs::remove_file(folder.path().join("tides.pdf")).unwrap();
    fs::remove_file(folder.path().join("encrypted.pdf")).unwrap();
    let third = update(&index, folder.path(), &reader()).await;
    assert_eq!(
        (third.added, third.removed, left_out(&third)),
        (1, 3, vec![])
    );
    assert_eq!(names(&index).await, ["tides.xlsx"]);

    // A file that cannot be read any more has no old texts.
    fs::write(folder.path().join("tides.xlsx"), file("encrypted.pdf")).unwrap();
    let fourth = update(&index, folder.path(), &reader()).await;
    assert_eq!(
        (fourth.removed, left_out(&fourth)),
        (1, vec![("tides.xlsx", reason)])
    );
}

#[tokio::test]
async fn update_without_reader_names_the_missing_reader() {
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), &["tides.pdf"]);
    let workspace = Workspace::builder(folder.path())
        .read_only()
        .build()
        .unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    let report = FolderUpdate::new(&index, &workspace).run().await.unwrap();
    let (path, reason) = left_out(&report)[0];
    assert!(
        path == "tides.pdf" && reason.contains("needs a reader of formats"),
        "{reason}"
    );
}

#[tokio::test]
async fn reader_needs_call_in_main() {
    let error = FormatReader::new().unwrap_err();
    assert!(
        error.to_string().contains("FormatReader::serve_if_child()"),
        "{error}"
    );
}

#[tokio::test]
async fn readers_that_fail_cost_one_file_each() {
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), &["tides.pdf"]);
    fs::write(folder.path().join("a.md"), "High water.").unwrap();
    let check = async |reader: FormatReader, expected: &str| {
        let index = DocumentIndex::in_memory().unwrap();
        let report = update(&index, folder.path(), &reader).await;
        let (_, reason) = left_out(&report)[0];
        assert!(report.added == 1 && reason.contains(expected), "{reason}");
    };
    let program = |path: &str| FormatReader::builder().program(path);
    check(program("/bin/false").build().unwrap(), "the reader failed").await;
    check(program("/bin/cat").build().unwrap(), "the reader failed").await;
    let short = Duration::from_millis(300);
    let yes = program("/usr/bin/yes").time_limit(short).build().unwrap();
    check(yes, "takes too long").await;
    let small = program(program_name())
        .memory_limit(1 << 20)
        .build()
        .unwrap();
    check(small, "the reader").await;
}

fn program_name() -> &'static str {
    Box::leak(program().to_string_lossy().into_owned().into_boxed_str())
}

/// A PDF whose page tree contains itself.
fn cyclic_pdf() -> Vec<u8> {
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[2 0 R]\
        /Count 1>>endobj\ntrailer<</Root 1 0 R/Size 3>>\nstartxref\n0\n%%EOF"
        .to_vec()
}

/// A PDF with many empty pages.
fn pdf_of_pages(count: usize) -> Vec<u8> {
    let mut pdf = b"%PDF-1.4\n".to_vec();
    let mut offsets = Vec::new();
    let mut add = |pdf: &mut Vec<u8>, body: String| {
        offsets.push(pdf.len());
        pdf.extend(format!("{} 0 obj{body}endobj\n", offsets.len()).bytes());
    };
    add(&mut pdf, "<</Type/Catalog/Pages 2 0 R>>".into());
    let kids: String = (0..count)
        .map(|page| format!("{} 0 R ", page + 3))
        .collect();
    add(
        &mut pdf,
        format!("<</Type/Pages/Kids[{kids}]/Count {count}>>"),
    );
    for _ in 0..count {
        add(
            &mut pdf,
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>".into(),
        );
    }
    let table = pdf.len();
    pdf.extend(format!("xref\n0 {}\n0000000000 65535 f \n", offsets.len() + 1).bytes());
    for offset in &offsets {
        pdf.extend(format!("{offset:010} 00000 n \n").bytes());
    }
    let size = offsets.len() + 1;
    pdf.extend(format!("trailer<</Root 1 0 R/Size {size}>>\nstartxref\n{table}\n%%EOF").bytes());
    pdf
}

/// Returns broken and hostile files with their names.
fn hostile_files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut state = 4_711_u64;
    let mut random = move |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % limit
    };
    let real = [
        "tides.pdf",
        "fpdf.pdf",
        "encrypted.pdf",
        "tides.odt",
        "tides.ods",
        "tides.odp",
        "tides.xlsx",
        "tides.epub",
    ];
    for name in real {
        let bytes = file(name);
        for part in 1..=8 {
            let cut = bytes[..bytes.len() * part / 9].to_vec();
            files.push((format!("cut{part}-{name}"), cut));
        }
        for round in 0..12 {
            let mut damaged = bytes.clone();
            for _ in 0..=round {
                let at = random(damaged.len());
                damaged[at] ^= 1 << random(8);
            }
            files.push((format!("flipped{round}-{name}"), damaged));
        }
        let mut doubled = bytes.clone();
        doubled.extend(&bytes);
        files.push((format!("doubled-{name}"), doubled));
        files.push((format!("{name}.docx"), bytes.clone()));
        let mut holes = bytes;
        holes.iter_mut().step_by(97).for_each(|byte| *byte = 0);
        files.push((format!("holes-{name}"), holes));
    }
    files.push(("cyclic.pdf".into(), cyclic_pdf()));
    files.push(("pages.pdf".into(), pdf_of_pages(10_000)));
    files.push(("deep.pdf".into(), {
        let mut pdf = b"%PDF-1.4\n1 0 obj".to_vec();
        pdf.extend(b"[".repeat(300_000));
        pdf
    }));
    files.push(("empty.pdf".into(), b"%PDF-".to_vec()));
    files.push(("empty.docx".into(), b"PK\x03\x04".to_vec()));
    files.push(("deep.eml".into(), {
        let part = "Content-Type: multipart/mixed; boundary=b\n\n--b\n";
        part.repeat(20_000).into_bytes()
    }));
    files.push(("words.eml".into(), b"Subject: =?utf-8?q?".repeat(20_000)));
    files.push((
        "noise.zip".into(),
        (0..100_000).map(|_| random(256) as u8).collect(),
    ));
    let mut noise = b"PK\x03\x04".to_vec();
    noise.extend((0..100_000).map(|_| random(256) as u8));
    files.push(("noise.docx".into(), noise));
    files
}

#[tokio::test]
async fn broken_and_hostile_files_get_a_status() {
    let folder = tempfile::tempdir().unwrap();
    let files = hostile_files();
    assert!(files.len() >= 190, "{} files", files.len());
    for (name, bytes) in &files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    fs::write(folder.path().join("good.md"), "High water is at six.").unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    let report = update(&index, folder.path(), &reader()).await;
    let documents = names(&index).await;
    assert!(documents.contains(&"good.md".to_owned()));
    for (name, _) in &files {
        let part = format!("{name}/");
        let is_indexed = documents
            .iter()
            .any(|one| one == name || one.starts_with(&part));
        let is_reported = report.skipped.iter().any(|file| &file.path == name);
        let parts = report
            .skipped
            .iter()
            .any(|file| file.path.starts_with(&part));
        assert!(is_indexed || is_reported || parts, "no status of {name}");
    }
    let failed = report
        .skipped
        .iter()
        .filter(|file| file.reason.contains("the reader"));
    eprintln!(
        "{} files: {} left out, {} of them by a failed process",
        files.len(),
        report.skipped.len(),
        failed.count()
    );
}

#[test]
fn killed_updates_leave_a_consistent_index() {
    let folder = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let file_of_index = place.path().join("documents.db");
    for number in 0..40 {
        let name = ["tides.pdf", "tides.xlsx", "tides.odt"][number % 3];
        // Readers ignore what follows the end of a file, and the hash differs.
        let mut bytes = file(name);
        if name == "tides.pdf" {
            bytes.extend(format!("\n% {number}\n").bytes());
        }
        fs::write(folder.path().join(format!("{number}-{name}")), bytes).unwrap();
        let text = format!("unique{number}x water");
        fs::write(folder.path().join(format!("{number}.md")), text).unwrap();
    }
    let start = || {
        Command::new(program())
            .arg(folder.path())
            .arg("water")
            .arg(&file_of_index)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut kills = 0;
    for round in 0..60_u64 {
        let mut child = start();
        std::thread::sleep(Duration::from_millis(20 + round * 97 % 400));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
    }
    let done = start().wait_with_output().unwrap();
    assert!(done.status.success(), "after {kills} kills");
    let again = start().wait_with_output().unwrap();
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(
        again.starts_with("0 documents, 0 files left out"),
        "{again}"
    );
    let index = DocumentIndex::open(&file_of_index).unwrap();
    let documents = runtime.block_on(names(&index));
    // 40 texts, 14 PDF files, 13 workbooks with two sheets, and 13 texts of OpenDocument.
    assert_eq!(documents.len(), 40 + 14 + 26 + 13);
    for number in 0..40 {
        let options = SearchOptions::new().limit(10);
        let found = runtime.block_on(index.search(&format!("unique{number}x"), &options));
        assert_eq!(found.unwrap().passages.len(), 1);
    }
}
