//! Examples live beside this package; see README.md.
