use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::World;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates an id from this text, without validation.
            pub fn new(id: impl Into<Arc<str>>) -> Self {
                Self(id.into())
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id! {
    /// The id of one run; a child's id is its parent's id, a dot and the effect that started it.
    ///
    /// ```
    /// # use levity_core::{EffectId, RunId};
    /// let child = RunId::new("r1").child(EffectId::new(3));
    /// assert_eq!(child.as_str(), "r1.3");
    /// assert_eq!(child.parent(), Some(RunId::new("r1")));
    /// ```
    RunId
}

text_id! {
    /// The id of one tool call; unique within a history.
    ///
    /// ```
    /// # use levity_core::CallId;
    /// assert_eq!(CallId::from("c1").to_string(), "c1");
    /// ```
    CallId
}

text_id! {
    /// The id of one conversation in a [`MemoryStore`](crate::MemoryStore).
    ///
    /// The id is untrusted text if users choose it. Use [`random`](Self::random) if knowing the id
    /// grants access to the conversation.
    ///
    /// ```
    /// # use levity_core::ConversationId;
    /// let id = ConversationId::new("support/2024-117");
    /// assert_eq!(id.as_str(), "support/2024-117");
    /// ```
    ConversationId
}

impl ConversationId {
    /// Generates an id of 128 random bits, as 32 hexadecimal digits that cannot be guessed.
    pub fn random(world: &dyn World) -> Self {
        Self::from(format!("{:016x}{:016x}", world.random(), world.random()))
    }
}

impl RunId {
    /// Generates an id of 128 random bits, as 32 hexadecimal digits.
    pub fn random(world: &dyn World) -> Self {
        Self::from(format!("{:016x}{:016x}", world.random(), world.random()))
    }

    /// Returns the id of the run that `effect` of this run starts.
    ///
    /// ```
    /// # use levity_core::{EffectId, RunId};
    /// let child = RunId::new("r1").child(EffectId::new(3));
    /// assert_eq!(child.as_str(), "r1.3");
    /// ```
    #[must_use]
    pub fn child(&self, effect: EffectId) -> Self {
        Self::from(format!("{self}.{effect}"))
    }

    /// Returns the run that started this one, if any.
    ///
    /// ```
    /// # use levity_core::RunId;
    /// assert_eq!(RunId::new("r1.3").parent(), Some(RunId::new("r1")));
    /// assert_eq!(RunId::new("r1").parent(), None);
    /// ```
    pub fn parent(&self) -> Option<Self> {
        self.0
            .rsplit_once('.')
            .map(|(parent, _)| Self::from(parent))
    }

    /// Returns `true` if this run is `above` itself or one of its descendants.
    ///
    /// ```
    /// # use levity_core::RunId;
    /// let (root, other) = (RunId::new("r1"), RunId::new("r10"));
    /// assert!(RunId::new("r1.3.0").is_within(&root) && !other.is_within(&root));
    /// assert_eq!(RunId::new("r1.3.0").depth(), 2);
    /// ```
    pub fn is_within(&self, above: &Self) -> bool {
        self.0
            .strip_prefix(&*above.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Returns the number of ancestors of this run.
    pub fn depth(&self) -> usize {
        self.0.matches('.').count()
    }
}

/// The number of an effect within its run, in the order in which the machine requested it.
///
/// ```
/// # use levity_core::EffectId;
/// let first = EffectId::new(0);
/// assert!(first < first.next());
/// assert_eq!(first.next().get(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(u64);

impl EffectId {
    /// Creates the id of the effect with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the effect.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the id of the effect requested after this one. Numbers also come from journals, so
    /// the addition saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
