/// What stands on a blackboard.
#[derive(Clone, Debug, Default)]
pub struct Board;
