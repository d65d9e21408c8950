//! Systems that cannot open files relative to a folder. No workspace can be opened there, so
//! nothing else is ever called.
//!
//! The handle is an enum without variants. So the compiler knows that no function with a handle can
//! be called, and the rest of the crate needs no `cfg`.

use std::fs::File;
use std::io;
use std::path::Path;

use super::meta::{EntryKind, Metadata};

/// A handle that cannot exist.
#[derive(Debug)]
pub(super) enum Fd {}

#[derive(Debug)]
#[allow(dead_code, reason = "nothing fails where nothing is called")]
pub(super) enum SysError {
    Missing,
    Link,
    NotDir,
    IsDir,
    Exists,
    NotEmpty,
    Special,
    TooLong,
    NoCall,
    Other(io::Error),
}

type Result<T> = std::result::Result<T, SysError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Pass,
    List,
    Read,
}

pub(super) fn open_root(_: &Path) -> io::Result<Fd> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn beneath(root: &Fd, _: &str, _: Purpose) -> Result<Fd> {
    match *root {}
}

pub(super) fn open(dir: &Fd, _: &str, _: Purpose) -> Result<Fd> {
    match *dir {}
}

pub(super) fn create(dir: &Fd, _: &str, _: u32) -> Result<File> {
    match *dir {}
}

pub(super) fn read_link(dir: &Fd, _: &str) -> Result<Option<Vec<u8>>> {
    match *dir {}
}

pub(super) fn stat_entry(dir: &Fd, _: &str) -> Result<Metadata> {
    match *dir {}
}

pub(super) fn stat_handle(fd: &Fd) -> Result<Metadata> {
    match *fd {}
}

pub(super) fn entries(dir: &Fd, _: impl FnMut(&[u8], Option<EntryKind>) -> bool) -> Result<()> {
    match *dir {}
}

pub(super) fn make_dir(dir: &Fd, _: &str) -> Result<()> {
    match *dir {}
}

pub(super) fn remove(dir: &Fd, _: &str, _: bool) -> Result<()> {
    match *dir {}
}

pub(super) fn rename(from: &Fd, _: &str, _: &Fd, _: &str) -> Result<()> {
    match *from {}
}

pub(super) fn rename_new(from: &Fd, _: &str, _: &Fd, _: &str) -> Result<()> {
    match *from {}
}

pub(super) fn set_mode(_: &File, _: u32) -> Result<()> {
    Err(SysError::NoCall)
}

pub(super) fn sync_dir(dir: &Fd) -> Result<()> {
    match *dir {}
}

pub(super) fn into_file(fd: Fd) -> File {
    match fd {}
}
