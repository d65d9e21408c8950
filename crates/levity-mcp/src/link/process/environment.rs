//! What a server's program sees of the host's environment.

use std::ffi::OsString;

use crate::config::InheritedEnvironment;

/// Variables that programs need to start, to find their files and to reach the network. None of
/// them holds a secret, save that proxies and indexes of packages may have a password in their
/// address: without it the server would reach nothing.
const BASICS: &[&str] = &[
    // Who and where.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "TMPDIR",
    "TEMP",
    "TMP",
    // Proxies and certificates.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "NODE_USE_SYSTEM_CA",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    // Where the programs that start servers keep and find packages.
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_USERCONFIG",
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "FNM_DIR",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "NODE_PATH",
    "PIP_CACHE_DIR",
    "PIP_CONFIG_FILE",
    "PIP_INDEX_URL",
    "PIPX_HOME",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_PYTHON",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "JAVA_HOME",
    "GOPATH",
    "CARGO_HOME",
    "RUSTUP_HOME",
    // Libraries where the system does not find them by itself.
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
    // Without these, programs do not start on Windows.
    "APPDATA",
    "COMSPEC",
    "COMMONPROGRAMFILES",
    "COMPUTERNAME",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "PUBLIC",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "USERDOMAIN",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Families of such variables.
const FAMILIES: &[&str] = &["LC_", "XDG_"];

/// The variables that are handed on.
pub(crate) fn inherited(inherit: &InheritedEnvironment) -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| {
            name.to_str()
                .is_some_and(|name| is_handed_on(name, inherit))
        })
        .collect()
}

fn is_handed_on(name: &str, inherit: &InheritedEnvironment) -> bool {
    match inherit {
        InheritedEnvironment::All => true,
        InheritedEnvironment::Basics => is_basic(name),
        InheritedEnvironment::Named(names) => {
            is_basic(name) || names.iter().any(|named| named == name)
        }
    }
}

/// Names are compared without regard to case: proxies and npm's settings are written both ways, and
/// on Windows all are.
fn is_basic(name: &str) -> bool {
    let family = |start: &&str| {
        name.get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    BASICS.iter().any(|basic| basic.eq_ignore_ascii_case(name)) || FAMILIES.iter().any(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, inherit: &InheritedEnvironment, expected: bool) {
        assert_eq!(is_handed_on(name, inherit), expected, "{name}");
    }

    #[test]
    fn basics_are_handed_on_and_secrets_are_not() {
        for name in [
            "PATH",
            "Path",
            "HOME",
            "LC_ALL",
            "XDG_CACHE_HOME",
            "https_proxy",
            "HTTPS_PROXY",
            "npm_config_cache",
        ] {
            check(name, &InheritedEnvironment::Basics, true);
        }
        for name in [
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "NPM_TOKEN",
            "LC",
            "PATHS",
            "",
        ] {
            check(name, &InheritedEnvironment::Basics, false);
        }
    }

    #[test]
    fn named_ones_come_on_top() {
        let named = InheritedEnvironment::Named(vec!["GITHUB_TOKEN".into()]);
        check("GITHUB_TOKEN", &named, true);
        check("PATH", &named, true);
        check("NPM_TOKEN", &named, false);
        check("NPM_TOKEN", &InheritedEnvironment::All, true);
    }
}
