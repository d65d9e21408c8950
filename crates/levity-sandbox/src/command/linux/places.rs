//! Places of the file system that commands may use, as Landlock rules.
//!
//! The list of readable system files is short on purpose: programs, libraries, certificates and
//! settings that are the same on most machines. Nothing in it is personal. Places are opened when
//! the sandbox is built, so a place that is replaced later stays the one that was checked.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, Scope,
};

use crate::SandboxError;
use crate::command::builder::{Network, Setup};
use crate::command::private::PrivateFolder;

/// Files that programs need to run, none of which are personal.
const PROGRAMS: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];

/// Files that common programs read at their start: the linker, certificates, users, time zone,
/// names of services.
const SETTINGS: [&str; 27] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/hosts",
    "/etc/protocols",
    "/etc/services",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/mime.types",
    "/etc/magic",
    "/etc/terminfo",
    "/etc/perl",
    "/sys/devices/system/cpu",
];

/// Settings for name resolution, readable only with network access.
const NAMES: [&str; 3] = ["/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf"];

/// Devices that neither store nor reveal anything.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Open places that commands may use.
#[derive(Debug)]
pub(super) struct Places {
    abi: ABI,
    open: Vec<(PathFd, BitFlags<AccessFs>)>,
    /// The writable places, by their real paths.
    pub(super) writable: Vec<PathBuf>,
    /// The places that read-only commands may read; the flag allows execution.
    pub(super) readable: Vec<(PathBuf, bool)>,
    /// The places that the user allowed in addition to the workspace, by their real paths.
    pub(super) opened: Vec<PathBuf>,
}

impl Places {
    pub(super) fn new(
        setup: &Setup,
        private: &PrivateFolder,
        abi: u32,
    ) -> Result<Self, SandboxError> {
        let abi = ABI::from(i32::try_from(abi).unwrap_or(0));
        let opened = setup
            .reads
            .iter()
            .chain(&setup.writes)
            .filter_map(|place| place.canonicalize().ok());
        let (open, opened) = (Vec::new(), opened.collect());
        let mut places = Self {
            abi,
            open,
            writable: Vec::new(),
            readable: Vec::new(),
            opened,
        };
        let names = if setup.network == Network::Any {
            &NAMES[..]
        } else {
            &[]
        };
        let system = PROGRAMS.iter().chain(&SETTINGS).chain(names);
        let programs = system
            .clone()
            .map(PathBuf::from)
            .chain(setup.reads.iter().cloned());
        places.readable.extend(programs.map(|place| (place, true)));
        let data = setup.writes.iter().cloned().chain([private.empty()]);
        places.readable.extend(data.map(|place| (place, false)));
        for place in system {
            // Most systems have only some of them.
            let _ = places.add(Path::new(place), reading(abi));
        }
        for device in DEVICES {
            let _ = places.add(Path::new(device), device_access());
        }
        let root = setup.workspace.root().to_owned();
        let mut writes = vec![private.temp(), private.home()];
        writes.extend(setup.writes.iter().cloned());
        let mut reads = setup.reads.clone();
        if setup.workspace.is_read_only() {
            reads.push(root);
        } else {
            writes.push(root);
        }
        for place in reads {
            places
                .add(&place, reading(abi))
                .map_err(|error| SandboxError::Place(place, error))?;
        }
        for place in writes {
            let named = |error| SandboxError::Place(place.clone(), error);
            places.add(&place, writing(abi)).map_err(named)?;
            let real = place.canonicalize().map_err(named)?;
            places.writable.push(real);
        }
        Ok(places)
    }

    /// Rights that only folders have are removed for a file, since Landlock rejects them.
    fn add(&mut self, place: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let is_folder = place.metadata()?.is_dir();
        let access = if is_folder {
            access
        } else {
            access & AccessFs::from_file(self.abi)
        };
        let open = PathFd::new(place).map_err(io::Error::other)?;
        self.open.push((open, access));
        Ok(())
    }

    /// Returns a ruleset that allows these places and nothing else; `None` without Landlock.
    pub(super) fn ruleset(&self) -> Option<OwnedFd> {
        let mut ruleset = self.create()?;
        for (place, access) in &self.open {
            ruleset = ruleset.add_rule(PathBeneath::new(place, *access)).ok()?;
        }
        ruleset.into()
    }

    /// Returns a ruleset that allows only the harmless devices, and everything in `temp`.
    pub(super) fn bare_ruleset(&self, temp: &Path) -> Option<OwnedFd> {
        let mut ruleset = self.create()?;
        for device in DEVICES {
            if let Ok(device) = PathFd::new(device) {
                ruleset = ruleset
                    .add_rule(PathBeneath::new(device, device_access()))
                    .ok()?;
            }
        }
        let temp = PathFd::new(temp).ok()?;
        let access = writing(self.abi) & !AccessFs::Execute;
        ruleset
            .add_rule(PathBeneath::new(temp, access))
            .ok()?
            .into()
    }

    /// Creates an empty ruleset that handles every right this kernel knows: what no rule allows is
    /// denied.
    fn create(&self) -> Option<RulesetCreated> {
        if self.abi == ABI::Unsupported {
            return None;
        }
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(self.abi))
            .ok()?;
        let scopes = Scope::from_all(self.abi);
        if !scopes.is_empty() {
            ruleset = ruleset.scope(scopes).ok()?;
        }
        ruleset.create().ok()
    }

    /// Returns the program folders of the system, by their real paths.
    pub(super) fn programs() -> impl Iterator<Item = PathBuf> {
        PROGRAMS
            .iter()
            .filter_map(|place| Path::new(place).canonicalize().ok())
    }

    /// Returns the allowed access to the command's own `/proc`.
    pub(super) fn proc_access() -> u64 {
        (AccessFs::ReadFile | AccessFs::ReadDir).bits()
    }
}

fn device_access() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile
}

fn reading(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_read(abi)
}

/// Returns all access rights to files and folders, without devices and the sockets of others.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    let never = AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeSock
        | AccessFs::IoctlDev
        | AccessFs::ResolveUnix;
    AccessFs::from_all(abi) & !never
}
