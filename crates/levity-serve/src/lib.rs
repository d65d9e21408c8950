//! levity's agents offered to others.
