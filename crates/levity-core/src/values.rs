use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Values that a program passes to its tools for one run, one per type: for example the user, the
/// tenant or a transaction.
///
/// The journal does not contain them: pass them again when you resume the run.
///
/// ```
/// # use levity_core::Values;
/// struct User(u32);
///
/// let values = Values::new().with(User(7));
/// assert_eq!(values.get::<User>().map(|user| user.0), Some(7));
/// assert!(values.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Values(Option<Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl Values {
    /// Creates an empty set of values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value and replaces an existing value of the same type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let values = Arc::make_mut(self.0.get_or_insert_default());
        values.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Returns the value of type `T`, if there is one.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.as_ref()?.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

/// Shows the number of values and none of their contents.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Values")
            .field(&self.0.as_ref().map_or(0, |values| values.len()))
            .finish()
    }
}
