//! The checksum of a record: CRC-32 as in gzip, PNG and zlib, which every language has at hand.
//!
//! It detects every single flipped bit, and every damage of up to 32 consecutive bits. It is not a
//! signature: an attacker who changes a record can write the matching checksum beside it.

/// The effect of a byte on the checksum, by the number of bytes that follow it.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (if sum & 1 == 1 { 0xedb8_8320 } else { 0 });
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let sum: u32 = tables[table - 1][byte];
            tables[table][byte] = (sum >> 8) ^ tables[0][(sum & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Returns the checksum of these parts, concatenated.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |sum, part| add(sum, part))
}

fn add(mut sum: u32, bytes: &[u8]) -> u32 {
    // Eight bytes at a time: the tables contain the effect of each of them.
    let (eights, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in eights {
        let first = sum ^ u32::from_le_bytes([*a, *b, *c, *d]);
        let at = |table: usize, byte: u32| TABLES[table][(byte & 0xff) as usize];
        sum = at(7, first)
            ^ at(6, first >> 8)
            ^ at(5, first >> 16)
            ^ at(4, first >> 24)
            ^ at(3, u32::from(*e))
            ^ at(2, u32::from(*f))
            ^ at(1, u32::from(*g))
            ^ at(0, u32::from(*h));
    }
    rest.iter().fold(sum, |sum, byte| {
        (sum >> 8) ^ TABLES[0][usize::from(sum as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::checksum;

    #[test]
    fn checksum_is_standard_crc_32() {
        for (text, sum) in [
            ("", 0),
            ("a", 0xe8b7_be43),
            ("123456789", 0xcbf4_3926),
            ("The quick brown fox jumps over the lazy dog", 0x414f_a339),
        ] {
            assert_eq!(checksum(&[text.as_bytes()]), sum, "{text}");
        }
    }

    proptest! {
        #[test]
        fn checksum_is_independent_of_parts(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
        ) {
            let (before, after) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(checksum(&[before, after]), checksum(&[&bytes]));
        }

        #[test]
        fn checksum_detects_every_flipped_bit(
            mut bytes in prop::collection::vec(any::<u8>(), 1..100),
            bit in 0_usize..800,
        ) {
            let sum = checksum(&[&bytes]);
            let bit = bit % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(checksum(&[&bytes]), sum);
        }
    }
}
