//! Permissions and links of an SQLite file and its folder of owners.

use std::fs;

use levity_core::{Journal, JournalErrorKind, RunId};
use levity_runtime::SqliteJournal;

use super::{Folder, run};

#[tokio::test]
async fn database_file_is_created_for_owner_only() {
    use crate::files::{rights_of_others, share};
    let folder = Folder::new();
    let journal = folder.journal();
    let _open = journal.open(&RunId::new("r")).await.unwrap();
    let rights = rights_of_others(&folder.0);
    assert!(
        rights.iter().any(|(path, _)| path.ends_with("runs.db-wal")),
        "{rights:?}"
    );
    assert!(
        rights
            .iter()
            .any(|(path, _)| path.ends_with("runs.db-owners")),
        "{rights:?}"
    );
    assert!(rights.iter().all(|(_, rights)| *rights == 0), "{rights:?}");
    assert_eq!(journal.problems(), [""; 0]);
    share(&folder.file(), 0o640);
    let is_reached = folder.0.ancestors().all(|above| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(above).unwrap().permissions().mode() & 0o011 != 0
    });
    let problems = folder.journal().problems();
    assert_eq!(problems.len(), usize::from(is_reached), "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem.contains("chmod go-rwx '")),
        "{problems:?}"
    );
}

#[test]
fn database_file_is_not_created_through_a_link() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("real.db", folder.file()).unwrap();
    let error = SqliteJournal::new(folder.file()).map(drop).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Refused, "{error}");
    assert!(
        error
            .to_string()
            .contains("is a symbolic link to a missing file"),
        "{error}"
    );
    assert!(!folder.0.join("real.db").exists());
}

/// In a cloned folder, `runs.db-owners` may be a link to any folder of the user.
#[tokio::test]
async fn owners_remove_no_files_of_others() {
    let names = [
        "letter.txt",
        "0123456789abcdef",
        "0123456789ABCDEF",
        "0123456789abcde",
        "notes",
    ];
    let outside = Folder::new();
    names
        .iter()
        .for_each(|name| fs::write(outside.0.join(name), "mine").unwrap());
    let kept = || {
        names
            .iter()
            .filter(|name| outside.0.join(name).exists())
            .count()
    };
    let folder = Folder::new();
    let journal = folder.journal();
    let owners = folder.0.join("runs.db-owners");
    std::os::unix::fs::symlink(&outside.0, &owners).unwrap();
    assert!(journal.open(&run()).await.is_err());
    drop(journal);
    assert_eq!(kept(), names.len());

    // This is a separate folder with files and links of others in it.
    let folder = Folder::new();
    let owners = folder.0.join("runs.db-owners");
    fs::create_dir(&owners).unwrap();
    for name in ["letter.txt", "0123456789ABCDEF"] {
        fs::write(owners.join(name), "mine").unwrap();
    }
    fs::write(owners.join("00000000000000ff"), "").unwrap();
    std::os::unix::fs::symlink(
        outside.0.join("letter.txt"),
        owners.join("0123456789abcdef"),
    )
    .unwrap();
    let journal = folder.journal();
    drop(journal.open(&run()).await.unwrap());
    drop(journal);
    assert!(owners.join("letter.txt").exists() && owners.join("0123456789ABCDEF").exists());
    assert!(
        !owners.join("00000000000000ff").exists(),
        "one of ours, which nobody holds, is removed"
    );
    assert_eq!(kept(), names.len());
}
