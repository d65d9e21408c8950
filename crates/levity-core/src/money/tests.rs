use proptest::prelude::*;

use super::*;

#[test]
fn dollars_that_are_no_amount_are_nothing_or_all() {
    for nothing in [f64::NAN, -1.0, f64::NEG_INFINITY, 0.0, -0.0] {
        assert_eq!(Money::from_dollars(nothing), Money::ZERO, "{nothing}");
    }
    for all in [f64::INFINITY, f64::MAX, 1e30] {
        assert_eq!(Money::from_dollars(all), Money::MAX, "{all}");
    }
    assert_eq!(Money::from_dollars(0.1), Money::from_nanos(100_000_000));
}

#[test]
fn a_price_that_is_no_price_is_never_nothing() {
    for wrong in [f64::NAN, -1.0, f64::NEG_INFINITY, f64::INFINITY] {
        let price = Price::new(wrong, wrong).with_cached(wrong).with_cache_write(wrong);
        assert!(price.cost(&Usage::new(1_000_000, 0)) == Money::MAX, "{wrong}");
        assert!(price.cost(&Usage::new(0, 1_000_000)) == Money::MAX, "{wrong}");
    }
    assert_eq!(Price::new(0.0, 0.0).cost(&Usage::new(u64::MAX, u64::MAX)), Money::ZERO);
}

#[test]
fn money_is_shown_exactly() {
    let cases = [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (12_300_000, "$0.0123"),
        (1_500_000_000, "$1.50"),
        (u64::MAX, "$18446744073.709551615"),
    ];
    for (nanos, shown) in cases {
        assert_eq!(Money::from_nanos(nanos).to_string(), shown);
    }
}

#[test]
fn each_kind_of_token_has_its_price() {
    let price = Price::new(3.0, 15.0).with_cached(0.3).with_cache_write(3.75);
    let mut usage = Usage::new(1_000_000, 1_000_000);
    (usage.cached, usage.cache_written) = (Some(200_000), Some(100_000));
    assert_eq!(price.cost(&usage), Money::from_dollars(0.7 * 3.0 + 0.2 * 0.3 + 0.1 * 3.75 + 15.0));
    (usage.cached, usage.cache_written) = (Some(u64::MAX), Some(u64::MAX));
    assert_eq!(price.cost(&usage), Money::from_dollars(15.3), "no more is cached than is sent");
    assert_eq!(price.cost(&Usage::new(1, 0)), Money::from_nanos(3_000));
    assert_eq!(Price::new(0.000_001, 0.0).cost(&Usage::new(1, 0)), Money::from_nanos(1), "rounded up");
}

fn short() -> impl Strategy<Value = Price> {
    let rate = || prop_oneof![Just(0), 0..100_000_000_000_u64, any::<u64>()].prop_map(Money);
    (rate(), rate(), proptest::option::of(rate()), proptest::option::of(rate())).prop_map(
        |(input, output, cached, cache_write)| Price { input, output, cached, cache_write, long: None },
    )
}

fn price() -> impl Strategy<Value = Price> {
    (short(), proptest::option::of((count(), short()))).prop_map(|(price, long)| match long {
        Some((over, long)) => price.with_long(over, long),
        None => price,
    })
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..1_000_000_u64, any::<u64>()]
}

proptest! {
    /// Whatever was used within the bounds, it costs no more than the most.
    #[test]
    fn nothing_costs_more_than_the_most(
        price in price(), input in count(), output in count(), less in 0.0..=1.0, cached in count(), written in count(),
    ) {
        let share = |tokens: u64| ((tokens as f64 * less) as u64).min(tokens);
        let mut usage = Usage::new(share(input), share(output));
        (usage.cached, usage.cache_written) = (Some(cached), Some(written));
        prop_assert!(price.cost(&usage) <= price.most(input, output));
    }

    /// What is afforded is paid for, and one token more is not.
    #[test]
    fn what_is_afforded_is_exact(price in price(), input in count(), money in count()) {
        let money = Money(money);
        match price.affords(input, money) {
            None => prop_assert!(price.most(input, 0) > money),
            Some(output) => {
                prop_assert!(price.most(input, output) <= money);
                if let Some(more) = output.checked_add(1).filter(|_| money < Money::MAX) {
                    prop_assert!(price.most(input, more) > money);
                }
            }
        }
    }
}
