//! The output of a program, which is also the place to stop it.
//!
//! The interpreter calls the writer for each print, and `poll_flush` in between. Both raise
//! `KeyboardInterrupt` after a cancellation; `engine::run` then reports a cancelled program,
//! whatever the program made of the exception.

use std::borrow::Cow;

use levity_core::CancelToken;
use monty_types::{ExcType, MontyException, PrintWriterCallback};

use crate::output::PrintedText;

/// Collects the printed text and checks regularly for cancellation.
pub(super) struct Writer<'a> {
    pub(super) printed: PrintedText,
    pub(super) max: usize,
    pub(super) cancel: &'a CancelToken,
}

impl Writer<'_> {
    fn check(&self) -> Result<(), MontyException> {
        match self.cancel.is_cancelled() {
            true => Err(MontyException::new(
                ExcType::KeyboardInterrupt,
                Some("cancelled".to_owned()),
            )),
            false => Ok(()),
        }
    }
}

impl PrintWriterCallback for Writer<'_> {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.printed.push(&output, self.max);
        self.check()
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.printed.push(end.encode_utf8(&mut [0; 4]), self.max);
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<(), MontyException> {
        self.check()
    }
}
