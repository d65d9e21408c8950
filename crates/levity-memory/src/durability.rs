/// How safe a save is once it returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// It survives a power cut. This is the default since a run's journal says that a conversation was saved, and
    /// survives one, too: a run that is resumed must not find less than was saved. It costs a wait for the disk
    /// per turn, some milliseconds beside a call of a model.
    #[default]
    Synced,
    /// It survives the end of the process, however that comes, and not a power cut: the last saves may be missing
    /// then, and what is left is whole.
    Buffered,
}
