//! A real Chroma server. `LEVITY_TEST_CHROMA` names the program `chroma`, or a folder with the
//! Python package `chromadb`; its dependencies are not needed.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use levity_core::{VectorEntry, VectorFilter, VectorStore, VectorStoreErrorKind};
use levity_docs::{ChromaStore, Document, DocumentIndex, SearchOptions};
use levity_test::conformance;

use crate::store::{check_complete, embedder, library, overlap};

/// Starts the server of the package, whose script needs the package's dependencies.
const START: &str = "import sys; sys.path.insert(0, sys.argv[1]); import chromadb_rust_bindings; \
    chromadb_rust_bindings.cli(['chroma'] + sys.argv[2:])";

/// A server on loopback, which ends with this value.
struct Chroma {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Chroma {
    /// Starts a server with its data in this folder, or reports why there is none.
    fn start(folder: &Path) -> Option<Self> {
        let Some(program) = std::env::var_os("LEVITY_TEST_CHROMA").map(PathBuf::from) else {
            // This is visible even if the test runner captures output.
            let said = b"SKIPPED: no Chroma server; LEVITY_TEST_CHROMA names no program\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), said);
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = spawn(&program, folder, port);
        let chroma = Self {
            program,
            folder: folder.to_owned(),
            port,
            child,
        };
        chroma.wait();
        Some(chroma)
    }

    /// Waits until the server accepts connections.
    fn wait(&self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the Chroma server does not start");
    }

    /// Kills the server.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again, with the same address and data.
    fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.folder, self.port);
        self.wait();
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn store(&self) -> ChromaStore {
        ChromaStore::new(self.address())
    }
}

impl Drop for Chroma {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &Path, folder: &Path, port: u16) -> Child {
    let mut command = if program.is_dir() {
        let mut python = Command::new("python3");
        python.args(["-c", START]).arg(program);
        python
    } else {
        Command::new(program)
    };
    command
        .args([
            "run",
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--path",
        ])
        .arg(folder.join("chroma"))
        .env("HOME", folder)
        .env("ANONYMIZED_TELEMETRY", "False")
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Returns the namespaces that the file of an index names.
fn namespaces(file: &Path) -> Vec<String> {
    let file = rusqlite::Connection::open(file).unwrap();
    let mut names = file.prepare("SELECT name FROM namespaces").unwrap();
    let names = names.query_map([], |row| row.get(0)).unwrap();
    names.collect::<Result<_, _>>().unwrap()
}

fn open(file: &Path, address: &str) -> DocumentIndex {
    let index = DocumentIndex::open(file).unwrap().with_embedder(embedder());
    index.with_vector_store(ChromaStore::new(address))
}

#[tokio::test]
async fn real_chroma_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let Some(chroma) = Chroma::start(folder.path()) else {
        return;
    };
    conformance::vector_store(|| chroma.store()).await;
}

#[tokio::test]
async fn real_chroma_gives_nearly_the_same_passages_as_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(chroma) = Chroma::start(folder.path()) else {
        return;
    };
    let path = folder.path().join("documents.db");
    let file = DocumentIndex::in_memory()
        .unwrap()
        .with_embedder(embedder());
    let outside = open(&path, &chroma.address());
    for index in [&file, &outside] {
        assert_eq!(index.add_all(library()).await.unwrap().store_error, None);
    }
    check_complete(&outside, &chroma.store(), &namespaces(&path)).await;
    let overlap = overlap(&file, &outside).await;
    assert!(overlap > 0.97, "{overlap}");

    outside.remove("docs/000.md").await.unwrap();
    outside
        .add(Document::new("src/001.txt", "A zeppelin."))
        .await
        .unwrap();
    check_complete(&outside, &chroma.store(), &namespaces(&path)).await;
}

#[tokio::test]
async fn real_chroma_explains_missing_databases_and_lost_collections() {
    let folder = tempfile::tempdir().unwrap();
    let Some(chroma) = Chroma::start(folder.path()) else {
        return;
    };
    let entry = |key| VectorEntry::new(key, vec![0.6, 0.8]).document("a.md");
    for store in [
        chroma.store().database("missing"),
        chroma.store().tenant("missing"),
    ] {
        let error = store.upsert("guide", &[entry(1)]).await.unwrap_err();
        assert_eq!(error.kind(), VectorStoreErrorKind::Rejected, "{error}");
        assert!(error.to_string().contains("does not exist"), "{error}");
    }
    // Another program deletes the collection, and creates it again with another id.
    let (one, other) = (chroma.store(), chroma.store());
    one.upsert("guide", &[entry(1), entry(2)]).await.unwrap();
    other.remove_all("guide").await.unwrap();
    assert_eq!(one.count("guide").await.unwrap(), 0);
    other.upsert("guide", &[entry(3)]).await.unwrap();
    assert_eq!(one.count("guide").await.unwrap(), 1);
    other.remove_all("guide").await.unwrap();
    one.upsert("guide", &[entry(4)]).await.unwrap();
    let found = one
        .nearest("guide", &[1.0, 0.0], &VectorFilter::new(), 9)
        .await
        .unwrap();
    assert_eq!(found[0].key, 4);
    let error = one
        .upsert("guide", &[VectorEntry::new(5, vec![1.0])])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), VectorStoreErrorKind::Rejected, "{error}");
    assert!(error.to_string().contains("dimension"), "{error}");
}

#[tokio::test]
async fn real_chroma_that_dies_during_an_update_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut chroma) = Chroma::start(folder.path()) else {
        return;
    };
    let path = folder.path().join("documents.db");
    let index = open(&path, &chroma.address());
    let mut failed = false;
    for (n, documents) in library().chunks(10).enumerate() {
        if n == 6 {
            chroma.kill();
        }
        let report = index.add_all(documents.to_vec()).await.unwrap();
        assert_eq!(report.added, 10, "the file is not affected");
        failed |= report.store_error.is_some();
    }
    assert!(failed);
    let error = index.remove("docs/000.md").await.unwrap_err();
    assert!(error.to_string().contains(&chroma.address()), "{error}");
    let words = index.search("boat", &SearchOptions::new()).await.unwrap();
    assert!(words.store_error.is_some() && words.passages.len() == 8);

    chroma.restart();
    let report = index.embed_missing().await.unwrap();
    assert_eq!(report.store_error, None);
    check_complete(&index, &chroma.store(), &namespaces(&path)).await;
}

/// The variables that name the file of an index and the address of a server to a process that
/// changes both.
const FILE: &str = "LEVITY_TEST_STORE_FILE";
const ADDRESS: &str = "LEVITY_TEST_STORE_ADDRESS";

/// Adds, replaces and removes documents if another test starts it in a process of its own.
#[tokio::test]
async fn change_documents_in_own_process() {
    let (Some(file), Ok(address)) = (std::env::var_os(FILE), std::env::var(ADDRESS)) else {
        return;
    };
    let index = open(Path::new(&file), &address);
    for round in 0.. {
        for (n, mut documents) in library().chunks(7).map(<[_]>::to_vec).enumerate() {
            documents[0].text.push_str(&format!("\nRound {round}."));
            let name = documents[1].name.clone();
            assert!(
                index
                    .add_all(documents)
                    .await
                    .unwrap()
                    .store_error
                    .is_none()
            );
            if n % 2 == 0 {
                index.remove(&name).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn killed_process_leaves_a_state_that_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let Some(chroma) = Chroma::start(folder.path()) else {
        return;
    };
    let path = folder.path().join("documents.db");
    let (mut added, mut incomplete) = (0, 0);
    for round in 0..60_u64 {
        if round >= 12 && added > 0 && incomplete > 0 {
            break;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "chroma::real::change_documents_in_own_process"])
            .env(FILE, &path)
            .env(ADDRESS, chroma.address())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // A different moment in each round, between the changes of the file and of the server.
        std::thread::sleep(Duration::from_millis(250 + round % 20 * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        let index = open(&path, &chroma.address());
        let status = index.status().await.unwrap();
        added += status.documents;
        incomplete += u64::from(status.vectors < status.passages);
        // A search in the state as it was left finds only passages that exist.
        let result = index
            .search("boat", &SearchOptions::new().limit(50))
            .await
            .unwrap();
        assert_eq!(result.store_error, None);
        let report = index.embed_missing().await.unwrap();
        assert_eq!(report.store_error, None);
        if status.documents > 0 {
            check_complete(&index, &chroma.store(), &namespaces(&path)).await;
        }
    }
    assert!(added > 0, "some documents were added before a kill");
    assert!(
        incomplete > 0,
        "some kill was between a change of the file and one of the server"
    );
}
