//! Ranges of addresses that belong to the public internet.
//!
//! The lists follow the special-purpose registries of IANA, with one address of a cloud in
//! addition. For IPv6, the rule is inverted: only `2000::/3` is public, so ranges that are assigned
//! later are refused until they are known to be public. Forms that contain an IPv4 address (mapped,
//! 6to4, Teredo, ISATAP) are refused as a whole; NAT64 is checked by the address in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            bits,
        }
    }

    /// Creates a range from its first 64 bits, which is all that the ranges below need.
    const fn v6(a: u16, b: u16, c: u16, d: u16, bits: u8) -> Self {
        Self {
            address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)),
            bits,
        }
    }

    /// An IPv4 range contains no IPv6 address, not even one that maps to it.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = ();

    /// Parses a range. An address alone is a range of one.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(max), |bits| bits.parse().map_err(|_| ()))?;
        if bits > max {
            Err(())
        } else {
            Ok(Self { address, bits })
        }
    }
}

/// IPv4 ranges that are unreachable from the public internet, and one that is internal to a cloud.
const V4: &[(Cidr, &str)] = &[
    (Cidr::v4(0, 0, 0, 0, 8), "an address of this network"),
    (Cidr::v4(10, 0, 0, 0, 8), "a private address"),
    (Cidr::v4(100, 64, 0, 0, 10), "a shared address of a carrier"),
    (Cidr::v4(127, 0, 0, 0, 8), "a loopback address"),
    // Azure serves its machines from this address, which looks like any other.
    (
        Cidr::v4(168, 63, 129, 16, 32),
        "an address of a cloud's own services",
    ),
    (Cidr::v4(169, 254, 0, 0, 16), "a link-local address"),
    (Cidr::v4(172, 16, 0, 0, 12), "a private address"),
    (Cidr::v4(192, 0, 0, 0, 24), "a reserved address"),
    (Cidr::v4(192, 0, 2, 0, 24), "an address for documentation"),
    (Cidr::v4(192, 31, 196, 0, 24), "a reserved address"),
    (Cidr::v4(192, 52, 193, 0, 24), "a reserved address"),
    (Cidr::v4(192, 88, 99, 0, 24), "an address of a 6to4 relay"),
    (Cidr::v4(192, 168, 0, 0, 16), "a private address"),
    (Cidr::v4(192, 175, 48, 0, 24), "a reserved address"),
    (Cidr::v4(198, 18, 0, 0, 15), "an address for benchmarks"),
    (
        Cidr::v4(198, 51, 100, 0, 24),
        "an address for documentation",
    ),
    (Cidr::v4(203, 0, 113, 0, 24), "an address for documentation"),
    (Cidr::v4(224, 0, 0, 0, 4), "a multicast address"),
    (Cidr::v4(255, 255, 255, 255, 32), "a broadcast address"),
    (Cidr::v4(240, 0, 0, 0, 4), "a reserved address"),
];

/// The same for IPv6. Addresses outside `2000::/3` are refused, whether they are listed here or
/// not.
const V6: &[(Cidr, &str)] = &[
    (
        Cidr::v6(0x64, 0xff9b, 1, 0, 48),
        "an address of a local translator",
    ),
    (Cidr::v6(0x100, 0, 0, 0, 64), "an address for discarding"),
    (Cidr::v6(0x2001, 0, 0, 0, 32), "a Teredo address"),
    (Cidr::v6(0x2001, 0, 0, 0, 23), "a reserved address"),
    (
        Cidr::v6(0x2001, 0xdb8, 0, 0, 32),
        "an address for documentation",
    ),
    (Cidr::v6(0x2002, 0, 0, 0, 16), "a 6to4 address"),
    (
        Cidr::v6(0x3fff, 0, 0, 0, 20),
        "an address for documentation",
    ),
    (
        Cidr::v6(0x5f00, 0, 0, 0, 16),
        "an address of segment routing",
    ),
    (Cidr::v6(0xfc00, 0, 0, 0, 7), "a private address"),
    (Cidr::v6(0xfe80, 0, 0, 0, 10), "a link-local address"),
    (Cidr::v6(0xfec0, 0, 0, 0, 10), "a site-local address"),
    (Cidr::v6(0xff00, 0, 0, 0, 8), "a multicast address"),
];

const GLOBAL: Cidr = Cidr::v6(0x2000, 0, 0, 0, 3);

/// Translators map IPv4 to this range for networks that have only IPv6. So a public IPv4 address
/// stays public here.
const NAT64: Cidr = Cidr::v6(0x64, 0xff9b, 0, 0, 96);

/// Returns the reason to refuse an address; `None` if it is public.
pub(super) fn refusal_reason(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => find_range(V4, address.into()),
        IpAddr::V6(address) => refusal_reason_v6(address),
    }
}

fn refusal_reason_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    if address.is_unspecified() {
        return Some("an address of this network");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if segments[..5] == [0; 5] {
        return Some("an IPv4 address written as IPv6");
    }
    if NAT64.contains(address.into()) {
        return find_range(
            V4,
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() as u32)),
        );
    }
    // ISATAP ends in an IPv4 address, which is where the packets go.
    if matches!(segments[4], 0 | 0x200) && segments[5] == 0x5efe {
        return Some("an address that tunnels to IPv4");
    }
    find_range(V6, address.into()).or_else(|| {
        (!GLOBAL.contains(address.into())).then_some("an address outside the public internet")
    })
}

fn find_range(ranges: &[(Cidr, &'static str)], address: IpAddr) -> Option<&'static str> {
    ranges
        .iter()
        .find(|(range, _)| range.contains(address))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests;
