use proptest::prelude::*;

use super::*;

#[test]
fn from_dollars_clamps_invalid_amounts() {
    for nothing in [f64::NAN, -1.0, f64::NEG_INFINITY, 0.0, -0.0] {
        assert_eq!(Money::from_dollars(nothing), Money::ZERO, "{nothing}");
    }
    for all in [f64::INFINITY, f64::MAX, 1e30] {
        assert_eq!(Money::from_dollars(all), Money::MAX, "{all}");
    }
    assert_eq!(Money::from_dollars(0.1), Money::from_nanos(100_000_000));
}

#[test]
fn invalid_price_is_never_zero() {
    for wrong in [f64::NAN, -1.0, f64::NEG_INFINITY, f64::INFINITY] {
        let price = Price::new(wrong, wrong)
            .with_cached(wrong)
            .with_cache_write(wrong);
        assert!(
            price.cost(&Usage::new(1_000_000, 0)) == Money::MAX,
            "{wrong}"
        );
        assert!(
            price.cost(&Usage::new(0, 1_000_000)) == Money::MAX,
            "{wrong}"
        );
    }
    assert_eq!(
        Price::new(0.0, 0.0).cost(&Usage::new(u64::MAX, u64::MAX)),
        Money::ZERO
    );
}

#[test]
fn money_displays_exact_amount() {
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
fn cost_uses_price_of_each_kind_of_token() {
    let price = Price::new(3.0, 15.0)
        .with_cached(0.3)
        .with_cache_write(3.75);
    let mut usage = Usage::new(1_000_000, 1_000_000);
    (usage.cached, usage.cache_written) = (Some(200_000), Some(100_000));
    assert_eq!(
        price.cost(&usage),
        Money::from_dollars(0.7 * 3.0 + 0.2 * 0.3 + 0.1 * 3.75 + 15.0)
    );
    (usage.cached, usage.cache_written) = (Some(u64::MAX), Some(u64::MAX));
    assert_eq!(
        price.cost(&usage),
        Money::from_dollars(15.3),
        "no more is cached than is sent"
    );
    assert_eq!(price.cost(&Usage::new(1, 0)), Money::from_nanos(3_000));
    assert_eq!(
        Price::new(0.000_001, 0.0).cost(&Usage::new(1, 0)),
        Money::from_nanos(1),
        "rounded up"
    );
}

fn short() -> impl Strategy<Value = Price> {
    let rate = || prop_oneof![Just(0), 0..100_000_000_000_u64, any::<u64>()].prop_map(Money);
    let maybe = || proptest::option::of(rate());
    (
        rate(),
        rate(),
        maybe(),
        maybe(),
        maybe(),
        proptest::option::of(0..1_000_u32),
    )
        .prop_map(
            |(input, output, cached, cache_write, cache_write_hour, priority)| Price {
                input,
                output,
                cached,
                cache_write,
                cache_write_hour,
                priority,
                ..Price::new(0.0, 0.0)
            },
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

#[test]
fn cost_uses_price_of_hourly_cache() {
    let usage = |written, hour| {
        let mut usage = Usage::new(1_000_000, 0);
        (usage.cache_written, usage.cache_written_hour) = (Some(written), Some(hour));
        usage
    };
    let price = Price::new(3.0, 15.0)
        .with_cache_write(3.75)
        .with_cache_write_hour(6.0);
    let dollars = Money::from_dollars;
    assert_eq!(price.cost(&usage(1_000_000, 1_000_000)), dollars(6.0));
    assert_eq!(price.cost(&usage(1_000_000, 0)), dollars(3.75));
    assert_eq!(
        price.cost(&usage(500_000, 200_000)),
        dollars(0.5 * 3.0 + 0.3 * 3.75 + 0.2 * 6.0)
    );
    assert_eq!(
        price.cost(&usage(500_000, u64::MAX)),
        dollars(1.5 + 3.0),
        "no more than was written"
    );
    let unlisted = Price::new(3.0, 15.0).with_cache_write(3.75);
    assert_eq!(
        unlisted.cost(&usage(1_000_000, 1_000_000)),
        dollars(6.0),
        "twice the input unless known"
    );
    assert_eq!(
        Price::new(1.0, 1.0)
            .with_cache_write(9.0)
            .cost(&usage(1_000_000, 1_000_000)),
        dollars(9.0)
    );
    assert_eq!(price.max_cost(1_000_000, 0), dollars(6.0));
    assert_eq!(price.without_hour().max_cost(1_000_000, 0), dollars(3.75));
    assert_eq!(unlisted.with_hour().max_cost(1_000_000, 0), dollars(6.0));
    let long = price.with_long(10, Price::new(6.0, 22.5).with_cache_write_hour(12.0));
    assert_eq!(long.cost(&usage(1_000_000, 1_000_000)), dollars(12.0));
    assert_eq!(long.without_hour().max_cost(1_000_000, 0), dollars(6.0));
}

#[test]
fn cost_includes_fees_and_tiers() {
    let dollars = Money::from_dollars;
    let price = Price::new(1.0, 2.0);
    let mut usage = Usage::new(1_000_000, 1_000_000);
    (usage.searches, usage.sessions) = (Some(3), Some(2));
    assert_eq!(
        price.cost(&usage),
        dollars(3.0),
        "an unknown fee adds nothing"
    );
    assert_eq!(
        price.cost_at_most(&usage),
        dollars(3.25),
        "an unknown fee counts as the assumed one if money is limited"
    );
    let known = price.with_fees(Fees::new().with_search(0.01).with_session(0.03));
    assert_eq!(known.cost(&usage), dollars(3.09));
    assert_eq!(known.cost_at_most(&usage), dollars(3.09));
    (usage.searches, usage.sessions) = (Some(u64::MAX), Some(u64::MAX));
    assert_eq!(known.cost(&usage), Money::MAX);

    let mut first = Usage::new(1_000_000, 1_000_000);
    first.priority = true;
    assert_eq!(price.with_priority(175).cost(&first), dollars(5.25));
    assert_eq!(
        price.cost(&first),
        dollars(9.0),
        "an unknown tier counts three times"
    );
    assert_eq!(
        price.with_priority(200).prioritised().cost(&first),
        dollars(6.0),
        "once, not twice"
    );
    assert_eq!(
        price
            .with_priority(u32::MAX)
            .prioritised()
            .with_long(0, price)
            .cost(&first),
        dollars(3.0)
    );
}

#[test]
fn usage_sums_saturate() {
    let mut all = Usage::new(u64::MAX, u64::MAX);
    (all.cached, all.cache_written, all.cache_written_hour) =
        (Some(u64::MAX), Some(u64::MAX), Some(u64::MAX));
    (all.reasoning, all.searches, all.sessions) = (Some(u64::MAX), Some(u64::MAX), Some(u64::MAX));
    (all.cost, all.priority) = (Some(Money::MAX), true);
    let mut twice = all;
    twice += all;
    assert_eq!(twice, all);
    assert_eq!(twice.total(), u64::MAX);
    assert_eq!(Price::new(1.0, 1.0).cost_at_most(&twice), Money::MAX);
}

proptest! {
    /// Any usage within the bounds costs no more than the maximum.
    #[test]
    fn cost_never_exceeds_most(
        price in price(), input in count(), output in count(), less in 0.0..=1.0,
        cached in count(), written in count(),
    ) {
        let share = |tokens: u64| ((tokens as f64 * less) as u64).min(tokens);
        let mut usage = Usage::new(share(input), share(output));
        (usage.cached, usage.cache_written) = (Some(cached), Some(written));
        prop_assert!(price.cost(&usage) <= price.max_cost(input, output));
        usage.cache_written_hour = Some(written / 2);
        prop_assert!(price.cost(&usage) <= price.with_hour().max_cost(input, output));
        usage.priority = true;
        prop_assert!(price.cost(&usage) <= price.with_hour().prioritised().max_cost(input, output));
    }

    /// The affordable tokens are within the money, and one token more is not.
    #[test]
    fn affords_returns_exact_maximum(price in price(), input in count(), money in count()) {
        let money = Money(money);
        match price.affords(input, money) {
            None => prop_assert!(price.max_cost(input, 0) > money),
            Some(output) => {
                prop_assert!(price.max_cost(input, output) <= money);
                if let Some(more) = output.checked_add(1).filter(|_| money < Money::MAX) {
                    prop_assert!(price.max_cost(input, more) > money);
                }
            }
        }
    }
}
