//! Vectors as they come from a server, and as the contract has them.

use levity_core::ModelError;

use super::malformed;

/// No model has more components.
const MOST: usize = 1 << 16;

/// Vectors that were looked at: as many as texts, of one length, each of length 1.
pub(super) struct Checked {
    pub(super) vectors: Vec<Vec<f32>>,
    dimensions: Option<usize>,
}

impl Checked {
    /// Vectors of so many components, or as many as the first one has.
    pub(super) fn new(dimensions: Option<usize>) -> Self {
        Self {
            vectors: Vec::new(),
            dimensions,
        }
    }

    /// Takes the vectors of `count` texts.
    pub(super) fn take(&mut self, vectors: Vec<Vec<f32>>, count: usize) -> Result<(), ModelError> {
        if vectors.len() != count {
            let message = format!("there are {} vectors for {count} texts", vectors.len());
            return Err(malformed(message));
        }
        for mut vector in vectors {
            self.check_length(vector.len())?;
            normalise(&mut vector)?;
            self.vectors.push(vector);
        }
        Ok(())
    }

    fn check_length(&mut self, length: usize) -> Result<(), ModelError> {
        let dimensions = *self.dimensions.get_or_insert(length);
        match length {
            0 => Err(malformed(
                "a vector is empty; is it a model for embeddings?",
            )),
            length if length > MOST => Err(malformed(format!(
                "a vector has more than {MOST} components"
            ))),
            length if length != dimensions => {
                let message = format!(
                    "a vector has {length} components, not {dimensions}; leave the number to the \
                        model, or ask for \
                     one that it has"
                );
                Err(malformed(message))
            }
            _ => Ok(()),
        }
    }
}

/// Gives a vector the length 1.
fn normalise(vector: &mut [f32]) -> Result<(), ModelError> {
    let length = vector
        .iter()
        .map(|part| f64::from(*part) * f64::from(*part))
        .sum::<f64>()
        .sqrt();
    if !length.is_finite() {
        return Err(malformed("a vector has components that are no numbers"));
    }
    if length == 0.0 {
        return Err(malformed(
            "a vector has no direction, although its text says something",
        ));
    }
    for part in vector {
        #[expect(clippy::cast_possible_truncation, reason = "it is at most 1")]
        let scaled = (f64::from(*part) / length) as f32;
        *part = scaled;
    }
    Ok(())
}
