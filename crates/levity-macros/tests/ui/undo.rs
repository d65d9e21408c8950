use levity_macros::tool;

async fn back() {}

/// Leaves nothing.
#[tool(read_only, undo = back)]
async fn one() {}

/// May be called again.
#[tool(idempotent, undo = back)]
async fn two() {}

/// Names nothing.
#[tool(undo)]
async fn three() {}

struct Hotel;

#[tool]
impl Hotel {
    /// Takes a path.
    #[tool(undo = Self::cancel)]
    async fn four(&self) {}

    /// Waits.
    #[tool(undo = cancel)]
    async fn five(&self) {}

    /// Is undone by something without a value.
    #[tool(undo = loose)]
    async fn six(&self) {}

    fn cancel(&self) {}

    async fn loose() {}
}

fn main() {}
