//! The part of the host's environment that a server's program inherits.
//!
//! A server is often a package from the network. It must not see the keys of the host, so the
//! default is a list of names that are needed to start programs and to reach the network. A
//! variable that is missing here is added by its name in the settings, and not by inheriting all.

use std::ffi::OsString;

use crate::config::InheritedEnvironment;

/// The variables that programs need to start, to find their files and to reach the network. They
/// contain no secrets, except that URLs of proxies and package indexes may have a password, without
/// which the server could not reach them.
const BASICS: &[&str] = &[
    // User and system.
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
    // Locations of packages for the programs that start servers.
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
    // Libraries outside the default paths of the system.
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
    // Programs on Windows do not start without these.
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

/// The prefixes of further variables of this kind.
const PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Returns the variables that the program inherits.
pub(crate) fn inherited(inherit: &InheritedEnvironment) -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| {
            name.to_str()
                .is_some_and(|name| is_inherited(name, inherit))
        })
        .collect()
}

/// Returns `true` if the program inherits a variable of this name.
fn is_inherited(name: &str, inherit: &InheritedEnvironment) -> bool {
    match inherit {
        InheritedEnvironment::All => true,
        InheritedEnvironment::Basics => is_basic(name),
        InheritedEnvironment::Named(names) => {
            is_basic(name) || names.iter().any(|named| named == name)
        }
    }
}

/// Compares names without case: proxies and npm's settings are written both ways, and Windows
/// ignores the case.
fn is_basic(name: &str) -> bool {
    let has_prefix = |start: &&str| {
        name.get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    BASICS.iter().any(|basic| basic.eq_ignore_ascii_case(name)) || PREFIXES.iter().any(has_prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, inherit: &InheritedEnvironment, expected: bool) {
        assert_eq!(is_inherited(name, inherit), expected, "{name}");
    }

    #[test]
    fn basics_inherit_common_variables_but_no_secrets() {
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
    fn named_inherits_basics_and_named_variables() {
        let named = InheritedEnvironment::Named(vec!["GITHUB_TOKEN".into()]);
        check("GITHUB_TOKEN", &named, true);
        check("PATH", &named, true);
        check("NPM_TOKEN", &named, false);
        check("NPM_TOKEN", &InheritedEnvironment::All, true);
    }
}
