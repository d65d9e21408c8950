//! Accounts, pipes and links in untrusted folders.

use super::*;

/// The credentials of a user, as gcloud writes them.
const ACCOUNT: &str = r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hush",
    "refresh_token": "hush"}"#;

#[cfg(unix)]
#[test]
fn account_named_by_file_must_be_in_its_folder() {
    let home = tempfile::tempdir().unwrap();
    let clone = home.path().join("clone");
    fs::create_dir_all(clone.join("inner")).unwrap();
    for account in ["account.json", "clone/own.json", "clone/inner/own.json"] {
        fs::write(home.path().join(account), ACCOUNT).unwrap();
    }
    std::os::unix::fs::symlink(home.path().join("account.json"), clone.join("link.json")).unwrap();
    std::os::unix::fs::symlink(home.path(), clone.join("up")).unwrap();
    let env = clone.join(".env");
    for (path, goes) in [
        ("own.json", true),
        ("inner/own.json", true),
        ("inner/../own.json", true),
        ("../account.json", false),
        ("inner/../../account.json", false),
        ("link.json", false),
        ("up/account.json", false),
        ("gone.json", false),
    ] {
        let path = clone.join(path);
        fs::write(
            &env,
            format!(
                "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_APPLICATION_CREDENTIALS={}",
                path.display()
            ),
        )
        .unwrap();
        match Models::new().with_env_file(&env).unwrap().model("vertex:m") {
            Ok(_) => assert!(goes, "{}", path.display()),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    !goes && matches!(error, Error::UntrustedAddress { .. }),
                    "{}: {text}",
                    path.display()
                );
                assert!(
                    text.contains("not sent to `projects/evil`") && !text.contains("``"),
                    "{text}"
                );
                assert!(
                    text.contains("`GOOGLE_ACCESS_TOKEN`") && text.contains("same folder"),
                    "{text}"
                );
            }
        }
    }
    // The user's own project is used with any account that is named.
    let own = Models::new().with_variable("GOOGLE_CLOUD_PROJECT", "mine");
    let path = home.path().join("account.json");
    fs::write(
        &env,
        format!("GOOGLE_APPLICATION_CREDENTIALS={}", path.display()),
    )
    .unwrap();
    assert!(own.with_env_file(&env).unwrap().model("vertex:m").is_ok());
    // A project from a file is not used with an account from the environment.
    fs::write(&env, "GOOGLE_CLOUD_PROJECT=evil").unwrap();
    let own = Models::new().with_variable("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap());
    let error = own
        .with_env_file(&env)
        .unwrap()
        .model("vertex:m")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`projects/evil`") && !error.contains("``"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_rejected_without_blocking() {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join(".env");
    for path in ["/dev/zero", "/dev/stdin", dir.path().to_str().unwrap()] {
        fs::write(&env, format!("LEVITY_MODELS={path}")).unwrap();
        let error = Models::new().with_env_file(&env).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error}");
        // A device is rejected by its length alone, but a pipe is not.
        assert!(
            chain(&error).contains("not a regular file"),
            "{}",
            chain(&error)
        );
        let own = Models::new().with_variable("GOOGLE_CLOUD_PROJECT", "p");
        let error = own
            .with_variable("GOOGLE_APPLICATION_CREDENTIALS", path)
            .model("vertex:m")
            .err()
            .unwrap();
        assert!(
            chain(&error).contains("not a regular file"),
            "{}",
            chain(&error)
        );
    }
    assert!(
        Models::new().with_env_file("/dev/zero").is_ok(),
        "it is no file, and so there is none"
    );
    // A reader of this pipe would get a key; without a reader, the writer blocks forever.
    let pipe = dir.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let written = pipe.clone();
    std::thread::spawn(move || fs::write(written, "OPENAI_API_KEY=theirs"));
    assert!(
        Models::new()
            .with_env_file(&pipe)
            .unwrap()
            .choose()
            .is_err(),
        "it was read"
    );
}

#[cfg(unix)]
#[test]
fn env_file_linked_outside_folder_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (clone, inner) = (dir.path().join("clone"), dir.path().join("clone/inner"));
    fs::create_dir_all(&inner).unwrap();
    fs::write(
        dir.path().join(".env"),
        "OPENAI_API_KEY=victim\nLEVITY_MODELS=models.json",
    )
    .unwrap();
    fs::write(inner.join("real"), "OPENAI_API_KEY=theirs").unwrap();
    let env = clone.join(".env");
    for (target, refused) in [
        ("../.env", true),
        ("inner/real", false),
        ("inner/../../.env", true),
        ("gone", false),
    ] {
        std::os::unix::fs::symlink(target, &env).unwrap();
        let read = Models::new().with_env_file(&env);
        match read {
            Err(error) => {
                let text = error.to_string();
                assert!(refused, "{target}: {text}");
                assert_eq!(error.kind(), ErrorKind::Untrusted, "{target}: {text}");
                assert!(
                    text.contains("link") && text.contains("copy") && !text.contains("victim"),
                    "{text}"
                );
            }
            Ok(_) => assert!(!refused, "{target}"),
        }
        fs::remove_file(&env).unwrap();
    }
}
