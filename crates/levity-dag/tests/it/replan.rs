//! Plans that are made and changed.
