/// How safe something is once a store says that it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// It survives a power cut. What must be there after one waits for the disk, for some
    /// milliseconds; what may be done again does not.
    #[default]
    Synced,
    /// It survives the end of the process, however that comes, and not a power cut: the last that
    /// was kept may be missing then, and what is left is whole.
    Buffered,
}
