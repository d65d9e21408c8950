//! Other paths of a workspace: mounts that show it, or a part of it, a second time.
//!
//! Landlock allows files and folders regardless of their path, and a cover hides a file on one path
//! only. So a command could read a denied file through a second mount of the workspace.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fstat, openat, statx};
use rustix::io::Errno;

use super::job::{Cover, CoverKind, Identity};

/// The mounts that this thread sees.
#[derive(Debug)]
pub(super) struct Mounts {
    all: Vec<Mount>,
    /// The workspace, and the mounts below it.
    regions: Vec<Region>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    device: Vec<u8>,
    /// The folder or file of its file system that it shows, and its mount point.
    root: Vec<u8>,
    point: Vec<u8>,
}

/// A part of a file system that the workspace shows.
#[derive(Debug)]
struct Region {
    mount: u64,
    device: Vec<u8>,
    root: Vec<u8>,
    at: Vec<u8>,
}

/// Another path of something that a region shows.
struct View<'a> {
    region: &'a Region,
    mount: &'a Mount,
    /// The path within the region, and the other path at which it appears.
    part: Vec<u8>,
    at: Vec<u8>,
}

/// The reason why a workspace with several mounts cannot be searched.
#[derive(Debug)]
pub(super) enum SearchError {
    Io(io::Error),
    /// The part of the workspace that this mount shows cannot be inspected, or cannot be hidden.
    Mount(PathBuf),
}

impl From<io::Error> for SearchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for SearchError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Mounts {
    /// Finds the mounts that are relevant for the workspace with this folder.
    pub(super) fn read(workspace: &Path) -> io::Result<Self> {
        // A thread may have its own mounts, and its children inherit them.
        let text = fs::read("/proc/thread-self/mountinfo")
            .or_else(|_| fs::read("/proc/self/mountinfo"))?;
        let all: Vec<Mount> = text
            .split(|byte| *byte == b'\n')
            .filter_map(parse)
            .collect();
        let at = workspace.as_os_str().as_bytes();
        let at = at.strip_suffix(b"/").unwrap_or(at).to_vec();
        let unknown = || io::Error::other("the mount of the workspace cannot be determined");
        let id = inspect(workspace.as_os_str().as_bytes())?
            .ok_or_else(unknown)?
            .mount;
        let own = all
            .iter()
            .find(|mount| mount.id == id)
            .ok_or_else(unknown)?;
        let rest = below(&own.point, &at).ok_or_else(unknown)?;
        let whole = Region {
            mount: id,
            device: own.device.clone(),
            root: append(&own.root, rest),
            at: at.clone(),
        };
        let inner = all
            .iter()
            .filter(|mount| below(&at, &mount.point).is_some_and(|rest| !rest.is_empty()));
        let inner = inner.map(|mount| Region {
            mount: mount.id,
            device: mount.device.clone(),
            root: mount.root.clone(),
            at: mount.point.clone(),
        });
        let regions = [whole].into_iter().chain(inner).collect();
        Ok(Self { all, regions })
    }

    fn workspace(&self) -> &[u8] {
        self.regions.first().map_or(b"", |region| &region.at)
    }

    /// Adds covers for hidden or protected paths that have other paths in the workspace. Returns
    /// covers for paths elsewhere.
    pub(super) fn cover_views(&self, covers: &mut Vec<Cover>) -> Result<Vec<Cover>, SearchError> {
        let mut elsewhere: Vec<Cover> = Vec::new();
        for view in self.views() {
            let named = || SearchError::Mount(OsStr::from_bytes(&view.mount.point).into());
            // If something else is mounted on it, or on a folder above it, it is not visible.
            let info = match inspect(&view.at).map_err(|_| named())? {
                Some(info) if info.mount == view.mount.id => info,
                _ => continue,
            };
            if below(self.workspace(), &view.at).is_some() {
                self.cover_inside(&view, &info, covers)?;
            } else if self.matters(&view, covers) {
                if below(&view.at, self.workspace()).is_some() {
                    // This would also hide the workspace itself.
                    return Err(named());
                }
                if !is_hidden(&elsewhere, &view.at) {
                    elsewhere.retain(|it| below(&view.at, it.path.as_bytes()).is_none());
                    elsewhere.extend(info.cover(info.hiding(), &view.at));
                }
            }
        }
        Ok(elsewhere)
    }

    fn views(&self) -> impl Iterator<Item = View<'_>> {
        self.regions.iter().flat_map(|region| {
            let others = self
                .all
                .iter()
                .filter(|it| it.id != region.mount && it.device == region.device);
            others.filter_map(|mount| {
                if let Some(rest) = below(&mount.root, &region.root) {
                    let at = append(&mount.point, rest);
                    return Some(View {
                        region,
                        mount,
                        part: Vec::new(),
                        at,
                    });
                }
                let part = below(&region.root, &mount.root)?.to_vec();
                Some(View {
                    region,
                    mount,
                    part,
                    at: mount.point.clone(),
                })
            })
        })
    }

    /// Returns `true` if a view shows something that is hidden or protected in the workspace, or
    /// that a mount in the workspace hides.
    fn matters(&self, view: &View<'_>, covers: &[Cover]) -> bool {
        let shown = append(&view.region.at, &view.part);
        let touches = |path: &[u8]| below(&shown, path).is_some();
        covers.iter().any(|cover| {
            touches(cover.path.as_bytes()) || below(cover.path.as_bytes(), &shown).is_some()
        }) || self
            .regions
            .iter()
            .skip(1)
            .any(|region| region.at != shown && touches(&region.at))
    }

    /// Covers another path in the workspace of something that is already covered.
    fn cover_inside(
        &self,
        view: &View<'_>,
        info: &PathInfo,
        covers: &mut Vec<Cover>,
    ) -> Result<(), SearchError> {
        let shown = append(&view.region.at, &view.part);
        let (mut whole, mut more) = (None, Vec::new());
        for cover in covers.iter() {
            let path = cover.path.as_bytes();
            if below(path, &shown).is_some() && cover.kind != CoverKind::Pinned {
                let kind = if cover.kind.hides() {
                    info.hiding()
                } else {
                    CoverKind::Fixed
                };
                whole = if whole.is_some_and(CoverKind::hides) {
                    whole
                } else {
                    Some(kind)
                };
            } else if let Some(rest) = below(&shown, path).filter(|rest| !rest.is_empty()) {
                more.push((cover.kind, append(&view.at, rest), cover.identity));
            }
        }
        if is_hidden(covers, &view.at) {
            return Ok(());
        }
        if let Some(kind) = whole {
            if kind.hides() {
                covers.retain(|cover| below(&view.at, cover.path.as_bytes()).is_none());
            }
            covers.extend(info.cover(kind, &view.at));
        }
        for (kind, path, identity) in more {
            let is_known = |it: &Cover| it.kind == kind && it.path.as_bytes() == path;
            if is_hidden(covers, &path) || covers.iter().any(is_known) {
                continue;
            }
            let trouble = |_| SearchError::Mount(OsStr::from_bytes(&view.mount.point).into());
            if let Some(there) = inspect(&path).map_err(trouble)?
                && there.identity == identity
            {
                covers.retain(|it| !kind.hides() || below(&path, it.path.as_bytes()).is_none());
                covers.extend(there.cover(kind, &path));
            }
        }
        Ok(())
    }
}

/// Returns `true` if a path is hidden, or is in a hidden folder.
fn is_hidden(covers: &[Cover], path: &[u8]) -> bool {
    covers
        .iter()
        .any(|it| it.kind.hides() && below(it.path.as_bytes(), path).is_some())
}

/// The file or folder at a path.
struct PathInfo {
    mount: u64,
    identity: Identity,
    kind: FileType,
}

impl PathInfo {
    fn hiding(&self) -> CoverKind {
        if self.kind == FileType::Directory {
            CoverKind::Folder
        } else {
            CoverKind::File
        }
    }

    fn cover(&self, kind: CoverKind, path: &[u8]) -> Option<Cover> {
        Some(Cover {
            kind,
            path: CString::new(path).ok()?,
            identity: self.identity,
        })
    }
}

/// Inspects a path; returns `None` if it does not exist.
fn inspect(path: &[u8]) -> io::Result<Option<PathInfo>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = if path.is_empty() { &b"/"[..] } else { path };
    let fd = match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    let stat = fstat(&fd)?;
    let more = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if more.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok(Some(PathInfo {
        mount: more.stx_mnt_id,
        identity: Identity::of(&stat),
        kind,
    }))
}

/// Returns the part of a path below a folder; empty for the folder itself.
fn below<'a>(folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder.strip_suffix(b"/").unwrap_or(folder))?;
    match rest {
        [] | b"/" => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn append(folder: &[u8], rest: &[u8]) -> Vec<u8> {
    match rest {
        [] => folder.to_vec(),
        _ => [folder.strip_suffix(b"/").unwrap_or(folder), b"/", rest].concat(),
    }
}

/// Parses a line of `mountinfo`: number, number of the parent, device, root, mount point, and more.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?.to_vec();
    Some(Mount {
        id,
        device,
        root: unescape(fields.next()?),
        point: unescape(fields.next()?),
    })
}

/// Decodes white space and backslashes, which are written as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|it| *first == b'\\' && it.iter().all(|it| (b'0'..b'8').contains(it)));
        match digits {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_is_parsed() {
        let line = b"36 35 98:0 /mnt\\1341 /a\\040b rw,noatime master:1 - ext3 /dev/root rw";
        let mount = Mount {
            id: 36,
            device: b"98:0".to_vec(),
            root: b"/mnt\\1".to_vec(),
            point: b"/a b".to_vec(),
        };
        assert_eq!(parse(line), Some(mount));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"x 1 0:1 / /"), None);
    }

    #[test]
    fn below_compares_whole_path_names() {
        for (folder, path, rest) in [
            ("/", "/", Some("")),
            ("/", "/a/b", Some("a/b")),
            ("", "/a", Some("a")),
            ("/a", "/a", Some("")),
            ("/a", "/a/b", Some("b")),
            ("/a", "/ab", None),
            ("/a/b", "/a", None),
        ] {
            assert_eq!(
                below(folder.as_bytes(), path.as_bytes()),
                rest.map(str::as_bytes),
                "{folder} {path}"
            );
        }
        assert_eq!(append(b"/", b"a/b"), b"/a/b");
        assert_eq!(append(b"/", b""), b"/");
        assert_eq!(append(b"/x", b"a"), b"/x/a");
        assert_eq!(append(b"", b"a"), b"/a");
    }
}
