use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn public_addresses_are_allowed() {
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450:4001::1",
        "2003::1",
        "2001:200::1",
        "64:ff9b::808:808",
        "3ffe::1",
    ];
    public
        .iter()
        .for_each(|text| assert_eq!(refusal_reason(address(text)), None, "{text}"));
}

#[test]
fn non_public_addresses_are_refused() {
    let refused = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.9",
        "203.0.113.5",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::a00:1",
        "64:ff9b:1::808:808",
        "64:ff9b::1:0:808:808",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "3fff::1",
        "3fff:fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "feff::1",
        "ff02::1",
        "ff0e::1",
        "2a00:1450::5efe:7f00:1",
        "2a00:1450::200:5efe:a00:1",
    ];
    refused
        .iter()
        .for_each(|text| assert!(refusal_reason(address(text)).is_some(), "{text}"));
}

/// Returns a pseudorandom sequence, the same in every run.
fn random() -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

#[test]
fn special_ipv4_addresses_of_std_are_refused() {
    for bits in random().take(500_000) {
        let v4 = Ipv4Addr::from_bits((bits >> 32) as u32);
        let special = v4.is_private()
            || v4.is_loopback()
            || v4.is_link_local()
            || v4.is_multicast()
            || v4.is_broadcast()
            || v4.is_documentation()
            || v4.is_unspecified();
        assert!(!special || refusal_reason(v4.into()).is_some(), "{v4}");
        // Conversely, for the large ranges: nearly everything else is public.
        let first = v4.octets()[0];
        if !matches!(
            first,
            0 | 10 | 100 | 127 | 168 | 169 | 172 | 192 | 198 | 203 | 224..
        ) {
            assert_eq!(refusal_reason(v4.into()), None, "{v4}");
        }
    }
}

#[test]
fn special_ipv6_addresses_of_std_are_refused() {
    let mut numbers = random();
    let heads = [
        0_u16, 0x64, 0x100, 0x2001, 0x2002, 0x2606, 0x3fff, 0x5f00, 0xfc00, 0xfe80, 0xff02,
    ];
    for round in 0..500_000 {
        let (high, low) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let mut segments = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).segments();
        if round % 2 == 0 {
            segments[0] = heads[round / 2 % heads.len()];
        }
        if round % 3 == 0 {
            segments[1..6].fill(0);
        }
        let v6 = Ipv6Addr::from(segments);
        let special = v6.is_loopback()
            || v6.is_multicast()
            || v6.is_unspecified()
            || v6.is_unique_local()
            || v6.is_unicast_link_local()
            || v6.to_ipv4().is_some();
        assert!(!special || refusal_reason(v6.into()).is_some(), "{v6}");
        if refusal_reason(v6.into()).is_none() {
            assert!(
                (0x2000..0x4000).contains(&segments[0]) || segments[..2] == [0x64, 0xff9b],
                "{v6}"
            );
        }
    }
}

#[test]
fn parsed_ranges_contain_their_addresses() {
    let holds = |range: &str, text: &str| {
        range
            .parse::<Cidr>()
            .expect("a range")
            .contains(address(text))
    };
    assert!(holds("127.0.0.0/8", "127.9.9.9") && !holds("127.0.0.0/8", "128.0.0.1"));
    assert!(holds("0.0.0.0/0", "9.9.9.9") && !holds("0.0.0.0/0", "::9"));
    assert!(holds("10.1.2.3", "10.1.2.3") && !holds("10.1.2.3", "10.1.2.4"));
    assert!(holds("fd00::/8", "fdff::1") && !holds("fd00::/8", "fe00::1"));
    assert!(holds("::/0", "fe80::1") && holds("::1", "::1") && !holds("::1/128", "::2"));
    for bad in [
        "",
        "10",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "a/8",
        "10.0.0.0/8/8",
    ] {
        assert_eq!(bad.parse::<Cidr>(), Err(()), "{bad}");
    }
}
