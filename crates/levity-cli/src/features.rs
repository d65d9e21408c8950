//! Parts that a build of the command can leave out, and their errors.
//!
//! Options of a part that is left out still exist, so settings files and scripts are read alike by
//! each build; using one is an error that names the feature of Cargo to install.

#[cfg(not(all(feature = "eval", feature = "serve")))]
use {crate::terminal::report_error, clap::Args, std::ffi::OsString, std::process::ExitCode};

/// The commands that this build leaves out.
pub(crate) const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "serve"))]
    "bridge",
    #[cfg(not(feature = "eval"))]
    "eval",
    #[cfg(not(feature = "serve"))]
    "serve",
    #[cfg(not(feature = "serve"))]
    "ui",
];

/// The arguments of a command that this build leaves out: any.
#[cfg(not(all(feature = "eval", feature = "serve")))]
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LeftOut {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[cfg(not(all(feature = "eval", feature = "serve")))]
impl LeftOut {
    /// Reports that the command needs this feature, and returns the exit code of a wrong call.
    pub(crate) fn report(&self, command: &str, feature: &str) -> ExitCode {
        report_error(&missing(&format!("levity {command}"), feature), 2)
    }
}

/// Describes a part of the command that needs this feature.
pub(crate) fn missing(part: &str, feature: &str) -> String {
    format!(
        "`{part}` is not in this build; install it with `cargo install levity-cli --features \
            {feature}`"
    )
}
