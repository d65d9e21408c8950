use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, Scope,
};

use crate::SandboxError;
use crate::command::builder::{Network, Setup};
use crate::command::private::Private;

/// What programs need to run, and nothing that is anybody's own.
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

const NAMES: [&str; 3] = ["/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf"];

const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Places that commands may use, opened.
#[derive(Debug)]
pub(super) struct Places {
    abi: ABI,
    open: Vec<(PathFd, BitFlags<AccessFs>)>,
    /// Those that may be written, by their real names.
    pub(super) writable: Vec<PathBuf>,
    /// What commands that only read may read, and whether they may execute it.
    pub(super) readable: Vec<(PathBuf, bool)>,
    /// Those that the user opened beside the workspace, by their real names.
    pub(super) opened: Vec<PathBuf>,
}

impl Places {
    pub(super) fn new(setup: &Setup, private: &Private, abi: u32) -> Result<Self, SandboxError> {
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
            // Most systems have some of them only.
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

    /// A ruleset that allows these places and nothing else; `None` where there is no Landlock.
    pub(super) fn ruleset(&self) -> Option<OwnedFd> {
        let mut ruleset = self.create()?;
        for (place, access) in &self.open {
            ruleset = ruleset.add_rule(PathBeneath::new(place, *access)).ok()?;
        }
        ruleset.into()
    }

    /// A ruleset that allows nothing but the harmless devices, and all in `temp`.
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

    /// Where the system keeps its programs, by their real names.
    pub(super) fn programs() -> impl Iterator<Item = PathBuf> {
        PROGRAMS
            .iter()
            .filter_map(|place| Path::new(place).canonicalize().ok())
    }

    /// What is allowed in a `/proc` of the command's own.
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

/// All that can be done with files and folders; not with devices, nor with the sockets of others.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    let never = AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeSock
        | AccessFs::IoctlDev
        | AccessFs::ResolveUnix;
    AccessFs::from_all(abi) & !never
}
