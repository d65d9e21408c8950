//! The examples are in the folder above; see README.md.
