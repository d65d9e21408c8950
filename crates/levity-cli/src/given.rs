//! The options `--image` and `--file`: what a goal comes with.
//!
//! Images become parts of the message that states the goal, so the model must accept images; a
//! model that does not is refused before the run starts. Files are described by a short profile,
//! and agents read them with the tool `read_given_file`, nothing else beside them.
//!
//! The type of an image is that of its content, whatever its name: providers reject an image whose
//! type is wrong.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{Media, Message, ModelCard, Part, Role, Tool};
use levity::tools::profile::{FileKind, FileProfile, profile_files};
use levity_system::files::read_at_most;

use crate::given_files::ReadGivenFile;
use crate::terminal::advise;

/// The maximum size of an image, in bytes. Providers accept no larger ones.
const MAX_IMAGE_BYTES: u64 = 10 << 20;
/// The maximum size of all images, in bytes.
const MAX_IMAGES_BYTES: usize = 32 << 20;
/// The maximum size of the profiles of files in a goal, in tokens.
const MAX_PROFILE_TOKENS: u64 = 4_000;

/// The options for images and files.
#[derive(Args)]
pub(crate) struct GivenArgs {
    /// Image that comes with the goal: PNG, JPEG, GIF or WebP, up to 10 MiB. The model must accept
    /// images. May be given more than once.
    #[arg(long = "image", value_name = "PATH")]
    images: Vec<PathBuf>,
    /// File to work with; levity inspects it first, and agents can read it. May be given more than
    /// once.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
}

impl GivenArgs {
    /// Reads the images and checks the files.
    ///
    /// # Errors
    /// A file does not exist, an image has another type or is too large, or all images together are
    /// too large.
    pub(crate) fn open(&self) -> Result<Given, String> {
        check_files(&self.files)?;
        let images = self.images.iter().map(|path| image(path));
        let images = images.collect::<Result<Vec<_>, _>>()?;
        let bytes: usize = images.iter().map(|(_, bytes)| bytes).sum();
        if bytes > MAX_IMAGES_BYTES {
            return Err(format!(
                "the images have {bytes} bytes in all, and the limit is {MAX_IMAGES_BYTES}; give \
                    fewer or smaller ones"
            ));
        }
        Ok(Given {
            images: images.into_iter().map(|(media, _)| media).collect(),
            files: self.files.clone(),
        })
    }
}

/// The images and files that a goal comes with.
#[derive(Clone, Default)]
pub(crate) struct Given {
    pub(crate) images: Vec<Media>,
    pub(crate) files: Vec<PathBuf>,
}

impl Given {
    /// Returns the files of a goal that was stored before, so that agents can read them again.
    ///
    /// # Errors
    /// A file does not exist or cannot be read.
    pub(crate) fn files(files: &[PathBuf]) -> Result<Self, String> {
        check_files(files)?;
        Ok(Self {
            images: Vec::new(),
            files: files.to_vec(),
        })
    }

    /// Checks that a model accepts the images.
    ///
    /// # Errors
    /// There are images, and the card of the model does not state that it accepts them.
    pub(crate) fn check(&self, card: &ModelCard) -> Result<(), String> {
        if self.images.is_empty() || card.capabilities.images {
            return Ok(());
        }
        Err(format!(
            "the model `{}` of `{}` is not known to accept images; choose another with `--model`, \
                or set `capabilities.images` for it in the file that `LEVITY_MODELS` names",
            card.id, card.provider
        ))
    }

    /// Returns the tool that reads the files, if there are any.
    pub(crate) fn tool(&self, report: impl Fn(&str)) -> Option<Arc<dyn Tool>> {
        let tool = || Arc::new(ReadGivenFile::new(&self.files, report)) as Arc<dyn Tool>;
        (!self.files.is_empty()).then(tool)
    }

    /// Returns the message that states a goal for one agent: its words, the profiles of the files,
    /// and the images.
    pub(crate) fn message(&self, goal: &str) -> Message {
        let mut text = goal.to_owned();
        if !self.files.is_empty() {
            let profiles = profile_files(&self.files).as_text(MAX_PROFILE_TOKENS);
            text = format!(
                "{text}{PROFILES}{profiles}\nRead them with `{}`.",
                ReadGivenFile::NAME
            );
        }
        let images = self.images.iter().cloned().map(Part::Media);
        Message::new(Role::User, std::iter::once(Part::text(text)).chain(images))
    }

    /// Returns `true` if the goal of a stored run has these words, with or without files.
    ///
    /// The profiles of the files are not compared, because a file may have changed since.
    pub(crate) fn is_goal(&self, stored: &str, goal: &str) -> bool {
        let rest = stored.strip_prefix(goal);
        rest.is_some_and(|rest| match self.files.is_empty() {
            true => rest.is_empty(),
            false => rest.starts_with(PROFILES),
        })
    }
}

/// The text between the words of a goal and the profiles of its files.
const PROFILES: &str = "\n\n";

/// Rejects a file that does not exist or cannot be read.
fn check_files(files: &[PathBuf]) -> Result<(), String> {
    let unreadable = files
        .iter()
        .map(FileProfile::read)
        .find(|file| file.kind == FileKind::Unknown);
    match unreadable.and_then(|file| file.error) {
        Some(problem) => Err(advise(problem, "check the path")),
        None => Ok(()),
    }
}

/// Reads an image, and returns it with its size in bytes.
fn image(path: &Path) -> Result<(Media, usize), String> {
    let shown = path.display();
    let bytes = read_at_most(path, MAX_IMAGE_BYTES).map_err(|error| {
        advise(
            format!("cannot read the image `{shown}`: {error}"),
            "check the path",
        )
    })?;
    let mime = mime(&bytes).ok_or_else(|| {
        format!("`{shown}` is not a PNG, JPEG, GIF or WebP image; convert it, or use `--file`")
    })?;
    let size = bytes.len();
    let mut media = Media::bytes(mime, bytes);
    let name = path.file_name().map(|name| name.to_string_lossy());
    media.name = name.map(std::borrow::Cow::into_owned);
    Ok((media, size))
}

/// Returns the type of an image by its first bytes. All providers accept these types.
fn mime(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_of_image_is_found_in_content() {
        let check = |bytes: &[u8], expected| assert_eq!(mime(bytes), expected, "{bytes:?}");
        check(b"\x89PNG\r\n\x1a\n", Some("image/png"));
        check(b"\xff\xd8\xff\xe0", Some("image/jpeg"));
        check(b"GIF89a..", Some("image/gif"));
        check(b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp"));
        check(b"RIFF\0\0\0\0WAVEfmt ", None);
        check(b"<svg xmlns=", None);
        check(b"", None);
    }

    #[test]
    fn goal_with_files_matches_its_words_only() {
        let files = Given {
            files: vec!["a.csv".into()],
            ..Given::default()
        };
        assert!(files.is_goal("Sum it\n\nFiles ..", "Sum it"));
        assert!(!files.is_goal("Sum it up\n\nFiles ..", "Sum it"));
        assert!(Given::default().is_goal("Sum it", "Sum it"));
        assert!(!Given::default().is_goal("Sum it\n\nmore", "Sum it"));
    }
}
