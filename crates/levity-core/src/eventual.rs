use std::fmt;
use std::future::{Future, IntoFuture, ready};
use std::pin::Pin;

/// A value that is known at once, or that is waited for.
///
/// Mostly the value is known, and nothing is allocated for it. Whoever asks may also hold the
/// future of a later value beside other work. Awaiting it gives the value either way.
///
/// ```
/// # use levity_core::Eventual;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (known, later) = (Eventual::from(2), Eventual::later(async { 5 }));
/// assert_eq!(known.await + later.map(|five| five + 1).await, 8);
/// # }
/// ```
#[must_use = "nothing is waited for until it is awaited"]
pub enum Eventual<T> {
    /// The value.
    Known(T),
    /// The future of the value. Dropping it gives the work up.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Eventual<T> {
    /// A value that is waited for.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// Changes the value, at once if it is known.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Eventual<U>
    where
        T: 'static,
    {
        match self {
            Self::Known(value) => Eventual::Known(change(value)),
            Self::Later(future) => Eventual::later(async move { change(future.await) }),
        }
    }
}

impl<T> From<T> for Eventual<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: Send + 'static> IntoFuture for Eventual<T> {
    type Output = T;
    type IntoFuture = Pin<Box<dyn Future<Output = T> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Known(value) => Box::pin(ready(value)),
            Self::Later(future) => future,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Eventual<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => f.debug_tuple("Known").field(value).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
