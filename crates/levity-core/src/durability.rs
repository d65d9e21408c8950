/// The durability of a record once a store reports that it is stored.
///
/// ```
/// # use levity_core::Durability;
/// assert_eq!(Durability::default(), Durability::Synced);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The record survives a power failure. Records that must survive one wait some milliseconds
    /// for the disk; records of work that may be repeated do not wait.
    #[default]
    Synced,
    /// The record survives the end of the process, even a crash, but not a power failure. After a
    /// power failure the last records may be missing; the remaining ones are intact.
    Buffered,
}
