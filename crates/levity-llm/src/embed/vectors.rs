//! Validates vectors from a server and normalises them.
//!
//! Programs store vectors and compare them much later, so a single bad vector costs more than a
//! failed call. Everything that does not fit is an error that names the reason.

use levity_core::ModelError;

use super::malformed;

/// The maximum number of components in a vector.
const MAX_COMPONENTS: usize = 1 << 16;

/// Validated vectors: one per text, with equal dimensions, each of length 1.
pub(super) struct ValidVectors {
    pub(super) vectors: Vec<Vec<f32>>,
    dimensions: Option<usize>,
}

impl ValidVectors {
    /// Expects vectors of this many components, or as many as the first vector has.
    pub(super) fn new(dimensions: Option<usize>) -> Self {
        Self {
            vectors: Vec::new(),
            dimensions,
        }
    }

    /// Adds the vectors of `count` texts.
    ///
    /// # Errors
    /// Returns `Malformed` if the number of vectors differs from `count`, or a vector is empty, has
    /// more than 65,536 components, other dimensions than the first one, components that are not
    /// numbers, or only zeros.
    pub(super) fn take(&mut self, vectors: Vec<Vec<f32>>, count: usize) -> Result<(), ModelError> {
        if vectors.len() != count {
            let message = format!("the reply has {} vectors for {count} texts", vectors.len());
            return Err(malformed(message));
        }
        for mut vector in vectors {
            self.check_length(vector.len())?;
            normalise(&mut vector)?;
            self.vectors.push(vector);
        }
        Ok(())
    }

    /// Compares a length with the expected one. The first vector sets it if the user did not.
    fn check_length(&mut self, length: usize) -> Result<(), ModelError> {
        let dimensions = *self.dimensions.get_or_insert(length);
        match length {
            0 => Err(malformed(
                "a vector is empty; is it a model for embeddings?",
            )),
            length if length > MAX_COMPONENTS => Err(malformed(format!(
                "a vector has more than {MAX_COMPONENTS} components"
            ))),
            length if length != dimensions => {
                let message = format!(
                    "a vector has {length} components instead of {dimensions}; omit the number or \
                     use one that the model supports"
                );
                Err(malformed(message))
            }
            _ => Ok(()),
        }
    }
}

/// Scales a vector to length 1.
///
/// The length is computed in 64 bits: the squares of large components overflow in 32 bits.
fn normalise(vector: &mut [f32]) -> Result<(), ModelError> {
    let length = vector
        .iter()
        .map(|part| f64::from(*part) * f64::from(*part))
        .sum::<f64>()
        .sqrt();
    if !length.is_finite() {
        return Err(malformed("a vector has components that are not numbers"));
    }
    if length == 0.0 {
        return Err(malformed("a vector is zero although its text is not empty"));
    }
    for part in vector {
        #[expect(clippy::cast_possible_truncation, reason = "it is at most 1")]
        let scaled = (f64::from(*part) / length) as f32;
        *part = scaled;
    }
    Ok(())
}
