use std::fmt;
use std::future::{Future, IntoFuture, ready};
use std::pin::Pin;

/// A value that is available now or later.
///
/// Usually the value is known, and nothing is allocated. Otherwise the caller can hold the future
/// beside other work. Awaiting an `Eventual` returns the value in both cases.
///
/// ```
/// # use levity_core::Eventual;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (known, later) = (Eventual::from(2), Eventual::later(async { 5 }));
/// assert_eq!(known.await + later.map(|five| five + 1).await, 8);
/// # }
/// ```
#[must_use = "an `Eventual` does nothing unless awaited"]
pub enum Eventual<T> {
    /// The value, which is already known.
    Known(T),
    /// The future of the value. Dropping it cancels the work.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Eventual<T> {
    /// Creates a value that `future` returns later.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// Applies `change` to the value, immediately if it is known.
    ///
    /// ```
    /// # use levity_core::Eventual;
    /// let text = Eventual::from(7).map(|number| number.to_string());
    /// assert!(matches!(text, Eventual::Known(text) if text == "7"));
    /// ```
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
