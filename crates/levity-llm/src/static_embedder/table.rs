//! A matrix of numbers in the safetensors format: a length, a JSON header, and bytes.
//!
//! The file is kept as it was read, and numbers are decoded during use. A table of 16-bit numbers
//! thus takes half the memory of one that is converted to 32 bits. Sums are computed in 64 bits, so
//! that rounding errors of long texts do not add up.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The maximum length of the header.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// The maximum number of columns.
const MAX_COLUMNS: usize = 1 << 14;

/// A table with one vector for each token.
///
/// After [`read`](Self::read), each row lies within `bytes` and every component is finite.
pub(super) struct Table {
    bytes: Vec<u8>,
    /// The position at which the numbers start.
    start: usize,
    rows: usize,
    columns: usize,
    kind: Kind,
}

/// The format of a number.
///
/// All are little-endian. BF16 is the upper half of an F32.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    F16,
    Bf16,
}

/// The description of a tensor in the header.
#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    /// The start and the end, relative to the end of the header.
    data_offsets: [usize; 2],
}

/// A tensor, or the metadata of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Tensor(Tensor),
    Notes(IgnoredAny),
}

impl Table {
    /// Checks the file and takes it over without a copy.
    ///
    /// # Errors
    /// Returns the problem in words: no header, no matrix or several, other numbers, a size that
    /// does not fit the file, components that are not numbers.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or("it has no header")?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_HEADER_BYTES.min(rest.len()) {
            return Err("its header is too long; it is not a safetensors file".to_owned());
        }
        let (header, data) = rest.split_at(length);
        let entries: HashMap<String, Entry> = serde_json::from_slice(header)
            .map_err(|error| format!("its header cannot be read: {error}"))?;
        let tensor = matrix(entries)?;
        let kind = Kind::named(&tensor.dtype)?;
        let [rows, columns] = tensor.shape[..] else {
            return Err("it has no matrix".to_owned());
        };
        if rows == 0 || !(1..=MAX_COLUMNS).contains(&columns) {
            return Err(format!("its matrix has {rows} rows and {columns} columns"));
        }
        let [from, to] = tensor.data_offsets;
        let size = rows
            .checked_mul(columns)
            .and_then(|count| count.checked_mul(kind.size()));
        if size.is_none() || to > data.len() || to.checked_sub(from) != size {
            return Err("its matrix is not within the file".to_owned());
        }
        let start = 8 + length + from;
        let table = Self {
            bytes,
            start,
            rows,
            columns,
            kind,
        };
        table.check()?;
        Ok(table)
    }

    /// Checks that all components are finite numbers.
    fn check(&self) -> Result<(), String> {
        let end = self.start + self.rows * self.columns * self.kind.size();
        let numbers = self.bytes.get(self.start..end).unwrap_or_default();
        let finite = match self.kind {
            Kind::F32 => numbers
                .as_chunks::<4>()
                .0
                .iter()
                .all(|part| f32::from_le_bytes(*part).is_finite()),
            Kind::F16 => numbers
                .as_chunks::<2>()
                .0
                .iter()
                .all(|part| u16::from_le_bytes(*part) & 0x7c00 != 0x7c00),
            Kind::Bf16 => numbers
                .as_chunks::<2>()
                .0
                .iter()
                .all(|part| u16::from_le_bytes(*part) & 0x7f80 != 0x7f80),
        };
        if finite {
            Ok(())
        } else {
            Err("its matrix has components that are not numbers".to_owned())
        }
    }

    /// Returns the number of tokens that the table has vectors for.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of components of a vector.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the mean vector of these tokens with length 1; zeros if the mean is zero.
    pub(super) fn mean(&self, tokens: &[u32]) -> Vec<f32> {
        let mut sum = vec![0.0_f64; self.columns];
        for token in tokens {
            self.add(*token, &mut sum);
        }
        let length = sum.iter().map(|part| part * part).sum::<f64>().sqrt();
        if length == 0.0 || !length.is_finite() {
            return vec![0.0; self.columns];
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is at most 1")]
        let part = |part: f64| (part / length) as f32;
        sum.into_iter().map(part).collect()
    }

    /// Adds the row of a token to a sum; a token without a row adds nothing.
    fn add(&self, token: u32, sum: &mut [f64]) {
        let size = self.columns * self.kind.size();
        let row = usize::try_from(token).unwrap_or(usize::MAX);
        // Every token has a row, and every row is within the file.
        let from = row
            .checked_mul(size)
            .and_then(|from| from.checked_add(self.start));
        let numbers = from
            .and_then(|from| self.bytes.get(from..from.checked_add(size)?))
            .unwrap_or_default();
        match self.kind {
            Kind::F32 => add(sum, numbers.as_chunks::<4>().0, |part| {
                f32::from_le_bytes(*part)
            }),
            Kind::F16 => add(sum, numbers.as_chunks::<2>().0, |part| {
                half(u16::from_le_bytes(*part))
            }),
            Kind::Bf16 => add(sum, numbers.as_chunks::<2>().0, |part| {
                f32::from_bits(u32::from(u16::from_le_bytes(*part)) << 16)
            }),
        }
    }
}

/// Adds decoded numbers to a sum, component by component.
fn add<T>(sum: &mut [f64], numbers: &[T], number: impl Fn(&T) -> f32) {
    for (sum, part) in sum.iter_mut().zip(numbers) {
        *sum += f64::from(number(part));
    }
}

/// Returns the only matrix of floats.
///
/// Other tensors, such as weights of tokens, are ignored.
fn matrix(entries: HashMap<String, Entry>) -> Result<Tensor, String> {
    let mut matrices = entries.into_values().filter_map(|entry| match entry {
        Entry::Tensor(tensor) if tensor.shape.len() == 2 => Some(tensor),
        _ => None,
    });
    match (matrices.next(), matrices.next()) {
        (Some(matrix), None) => Ok(matrix),
        (None, _) => Err("it has no matrix".to_owned()),
        _ => Err("it has more than one matrix".to_owned()),
    }
}

impl Kind {
    /// Returns the format for its name in the header.
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "F32" => Ok(Self::F32),
            "F16" => Ok(Self::F16),
            "BF16" => Ok(Self::Bf16),
            _ => Err("its numbers are not F32, F16 or BF16".to_owned()),
        }
    }

    /// Returns the bytes of one number.
    fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }
}

/// Converts a 16-bit float: a sign, 5 bits of exponent and 10 bits of fraction.
///
/// Infinity and NaN do not occur, because the file was checked. There is no branch, so the compiler
/// converts several numbers at once.
fn half(bits: u16) -> f32 {
    /// The difference of the exponents' offsets, 127 and 15.
    const OFFSET: u32 = 127 - 15;
    let (sign, size) = (
        u32::from(bits & 0x8000) << 16,
        u32::from(bits & 0x7fff) << 13,
    );
    let normal = size + (OFFSET << 23);
    // Exponent 0 is a subnormal number: a fraction without the leading 1.
    let one = (OFFSET + 1) << 23;
    let subnormal = (f32::from_bits(size + one) - f32::from_bits(one)).to_bits();
    let size = if bits & 0x7c00 == 0 {
        subnormal
    } else {
        normal
    };
    f32::from_bits(sign | size)
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Table({} x {}, {:?})",
            self.rows, self.columns, self.kind
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_converts_all_kinds_of_values() {
        for (bits, number) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
        ] {
            assert_eq!(half(bits), number, "{bits:#06x}");
        }
        for bits in (0..0x7c00).chain(0x8000..0xfc00) {
            let (exponent, fraction) = (i32::from((bits >> 10) & 0x1f), f32::from(bits & 0x3ff));
            let size = match exponent {
                0 => fraction * 2.0_f32.powi(-24),
                _ => (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
            };
            let number = if bits & 0x8000 == 0 { size } else { -size };
            assert_eq!(half(bits), number, "{bits:#06x}");
        }
    }
}
