use proptest::prelude::*;

use levity_core::{CancelToken, EffectKind, Fees, Usage};

use super::*;

fn root(limits: Limits) -> Arc<Meter> {
    Arc::new(Meter::new(limits, None))
}

fn child(limits: Limits, parent: &Arc<Meter>) -> Arc<Meter> {
    Arc::new(Meter::new(limits, Some(parent.clone())))
}

fn dollars(dollars: f64) -> Money {
    Money::from_dollars(dollars)
}

/// Returns a bound at a dollar per million tokens, in or out: a token is a millionth of a dollar.
fn worst(input: u64, output: u64) -> CostBound {
    CostBound::new(input)
        .with_output(output)
        .with_price(Price::new(1.0, 1.0))
}

#[track_caller]
fn waits(meter: &Arc<Meter>, worst: CostBound) -> CancelToken {
    match meter.reserve(worst) {
        Err(Refusal::Wait(freed)) => freed,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(meter: &Arc<Meter>, worst: CostBound) -> Limit {
    match meter.reserve(worst) {
        Err(Refusal::Limit(limit)) => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reserve_holds_worst_case_up_the_tree_and_settle_releases_rest() {
    let top = root(Limits::new().tokens(1_000).money(dollars(1.0)));
    let middle = child(Limits::new(), &top);
    let bottom = child(Limits::new().tokens(5_000), &middle);
    let reservation = bottom.reserve(worst(300, 200)).unwrap();
    for meter in [&top, &middle, &bottom] {
        assert_eq!(
            meter.used().held,
            Amount {
                tokens: 500,
                cost: dollars(0.0005)
            }
        );
        assert_eq!(meter.spent(), Spending::default());
    }
    let mut usage = Usage::new(100, 10);
    reservation.settle(&mut usage);
    assert_eq!(usage.cost, Some(dollars(0.00011)));
    for meter in [&top, &middle, &bottom] {
        assert_eq!(meter.used().held, Amount::default());
        assert_eq!(meter.spent(), Spending::on(110, Some(dollars(0.00011))));
    }
}

#[test]
fn reserve_limits_reply_by_remaining_budget() {
    let top = root(Limits::new().tokens(1_000));
    let bottom = child(Limits::new().money(dollars(0.0004)), &top);
    assert_eq!(
        bottom.reserve(worst(300, 500)).unwrap().output(),
        100,
        "the nearest limit is the tightest"
    );
    assert_eq!(
        bottom.spent().tokens,
        400,
        "a dropped reservation counts in full"
    );
    assert_eq!(refused(&bottom, worst(300, 500)), Limit::Money);
    assert_eq!(
        top.reserve(worst(100, 5_000)).unwrap().output(),
        500,
        "the money limit of the child applies"
    );
    assert_eq!(refused(&top, worst(1, 1)), Limit::Tokens);
    let unlimited = root(Limits::new().tokens(1_000_000));
    assert_eq!(
        unlimited.reserve(CostBound::new(1)).unwrap().output(),
        CostBound::DEFAULT_OUTPUT
    );
}

#[test]
fn reserve_refuses_too_short_reply_unless_requested() {
    let meter = root(Limits::new().tokens(100));
    assert_eq!(refused(&meter, worst(50, 500)), Limit::Tokens);
    meter.reserve(worst(50, 10)).unwrap().release();
    assert_eq!(
        meter
            .reserve(worst(100 - CostBound::LEAST_OUTPUT, 500))
            .unwrap()
            .output(),
        CostBound::LEAST_OUTPUT
    );
}

#[test]
fn reserve_waits_until_budget_is_released() {
    let top = root(Limits::new().tokens(1_000));
    let (first, second) = (child(Limits::new(), &top), child(Limits::new(), &top));
    let held = first.reserve(worst(100, 600)).unwrap();
    let freed = waits(&second, worst(100, 600));
    assert!(!freed.is_cancelled());
    held.settle(&mut Usage::new(100, 20));
    assert!(freed.is_cancelled());
    assert_eq!(second.reserve(worst(100, 600)).unwrap().output(), 600);
    // A limit of a run in the middle, and none above it.
    let middle = child(Limits::new().tokens(1_000), &root(Limits::new()));
    let (first, second) = (child(Limits::new(), &middle), child(Limits::new(), &middle));
    let held = first.reserve(worst(100, 600)).unwrap();
    let freed = waits(&second, worst(100, 600));
    drop(held);
    assert!(freed.is_cancelled());
    assert_eq!(second.reserve(worst(100, 600)).unwrap().output(), 200);
}

#[test]
fn settle_counts_unknown_usage_as_maximum() {
    let settled = |mut usage: Usage| {
        let meter = root(Limits::new().money(dollars(1.0)));
        meter.reserve(worst(300, 200)).unwrap().settle(&mut usage);
        assert_eq!(Spending::on(usage.total(), usage.cost), meter.spent());
        (usage.input, usage.output, usage.estimated)
    };
    let mut usage = Usage::default();
    assert_eq!(settled(usage), (Some(300), Some(200), true));
    usage.output = Some(7);
    assert_eq!(settled(usage), (Some(300), Some(7), true));
    (usage.input, usage.estimated) = (Some(9), true);
    assert_eq!(
        settled(usage),
        (Some(300), Some(200), true),
        "an estimate does not come from the provider"
    );
    assert_eq!(
        settled(Usage::new(900, 900)),
        (Some(900), Some(900), false),
        "usage over the limit counts"
    );
}

#[test]
fn settle_uses_highest_rate_for_unknown_cache_status() {
    let settled = |cached: Option<u64>, written: Option<u64>, input: Option<u64>| {
        let price = Price::new(1.0, 1.0).with_cached(0.1).with_cache_write(2.0);
        let meter = root(Limits::new().money(dollars(1.0)));
        let mut usage = Usage::new(0, 100);
        (usage.input, usage.cached, usage.cache_written) = (input, cached, written);
        meter
            .reserve(worst(1_000, 200).with_price(price))
            .unwrap()
            .settle(&mut usage);
        meter.spent().cost
    };
    assert_eq!(settled(Some(1_000), Some(0), Some(1_000)), dollars(0.0002));
    assert_eq!(settled(None, None, Some(1_000)), dollars(0.0021));
    assert_eq!(settled(Some(1_000), Some(0), None), dollars(0.0021));
}

#[test]
fn settle_counts_unknown_fees_as_maximum() {
    let settled = |price: Price, written: Option<u64>, priority: bool| {
        let meter = root(Limits::new().money(dollars(1.0)));
        let mut usage = Usage::new(1_000, 0);
        (usage.searches, usage.cache_written, usage.priority) = (Some(2), written, priority);
        meter
            .reserve(worst(1_000, 200).with_price(price))
            .unwrap()
            .settle(&mut usage);
        assert_eq!(usage.cost, Some(meter.spent().cost));
        meter.spent().cost
    };
    let (price, fees) = (Price::new(1.0, 1.0), Fees::UNKNOWN.saturating_mul(2));
    assert_eq!(
        settled(price, Some(0), false),
        dollars(0.001).saturating_add(fees)
    );
    assert_eq!(
        settled(
            price.with_fees(Fees::new().with_search(0.01)),
            Some(0),
            false
        ),
        dollars(0.021)
    );
    assert_eq!(
        settled(price.with_priority(200), Some(0), true),
        dollars(0.002).saturating_add(fees)
    );
    // The same with an unknown cache status.
    let written = price.with_cache_write(2.0).with_priority(200);
    assert_eq!(
        settled(written, None, false),
        dollars(0.002).saturating_add(fees)
    );
    assert_eq!(
        settled(written, None, true),
        dollars(0.004).saturating_add(fees)
    );
}

#[test]
fn add_counts_unpriced_tokens_by_assumed_price_or_as_maximum() {
    let before = Spending::new(3, 0, 1_000);
    let meter = root(Limits::new().money(dollars(1.0)));
    meter.add(&before);
    assert_eq!(refused(&meter, worst(1, 100)), Limit::Money);
    let ruled = root(
        Limits::new()
            .money(dollars(1.0))
            .assumed_price(Price::new(1.0, 500.0)),
    );
    ruled.add(&before);
    assert_eq!(ruled.spent().cost, dollars(0.5));
    ruled.reserve(worst(1, 100)).unwrap().release();
}

#[test]
fn admit_counts_calls_here_and_above_or_not_at_all() {
    let top = root(Limits::new().model_calls(2).tool_calls(1));
    let below = child(Limits::new().model_calls(5), &top);
    assert_eq!(below.admit(EffectKind::Model), Ok(()));
    assert_eq!(top.admit(EffectKind::Model), Ok(()));
    assert_eq!(below.admit(EffectKind::Model), Err(Limit::ModelCalls));
    assert_eq!(below.admit(EffectKind::Tool), Ok(()));
    assert_eq!(below.admit(EffectKind::Tool), Err(Limit::ToolCalls));
    assert_eq!(
        (below.spent().model_calls, below.spent().tool_calls),
        (1, 1)
    );
}

#[test]
fn low_returns_limit_at_configured_share() {
    let meter = root(Limits::new().tokens(1_000).low(20));
    let below = child(Limits::new(), &meter);
    below.add(&Spending::on(799, None));
    assert_eq!(below.low(), None);
    below.add(&Spending::on(1, None));
    assert_eq!(
        (below.low(), below.almost_reached()),
        (Some(Limit::Tokens), None)
    );
    assert_eq!(
        root(Limits::new().money(dollars(1.0)).low(100)).low(),
        Some(Limit::Money)
    );
    assert_eq!(root(Limits::new().low(100)).low(), None);
}

#[test]
fn almost_reached_reserves_answers_of_run_and_ancestors() {
    // A call of 300 tokens, and an answer of at most 500 after it.
    let called = |meter: &Arc<Meter>| {
        meter
            .reserve(worst(400, 100))
            .unwrap()
            .settle(&mut Usage::new(200, 100));
    };
    let top = root(Limits::new().tokens(10_000));
    let (middle, bottom) = (child(Limits::new(), &top), child(Limits::new(), &top));
    top.add(&Spending::on(8_700, None));
    called(&top);
    assert_eq!(
        (top.almost_reached(), middle.almost_reached()),
        (None, None)
    );
    called(&middle);
    // 700 remain: not enough for the 800 of any run, and a new run is assumed to be like the one
    // above it.
    assert_eq!(top.almost_reached(), Some(Limit::Tokens));
    assert_eq!(bottom.almost_reached(), Some(Limit::Tokens));

    let top = root(Limits::new().tokens(10_000));
    let below = child(Limits::new(), &top);
    top.add(&Spending::on(8_400, None));
    called(&top);
    called(&below);
    // 1,000 remain: enough for the 800 of one run, but not for the answer of the other as well.
    assert_eq!(
        (top.almost_reached(), below.almost_reached()),
        (None, Some(Limit::Tokens))
    );

    let idle = root(Limits::new().tokens(10_000));
    idle.add(&Spending::on(9_000, None));
    called(&child(Limits::new(), &idle));
    assert_eq!(
        idle.almost_reached(),
        Some(Limit::Tokens),
        "it makes no call itself, so the last call below counts"
    );
}

/// An action on a tree of meters.
#[derive(Clone, Debug)]
enum Action {
    Reserve {
        at: usize,
        input: u64,
        output: u64,
        sends: u64,
    },
    Settle {
        nth: usize,
        input: u64,
        output: u64,
        silent: bool,
    },
    Release {
        nth: usize,
    },
    Drop {
        nth: usize,
    },
}

fn limits() -> impl Strategy<Value = Limits> {
    let tokens = proptest::option::of(0_u64..20_000);
    (tokens, proptest::option::of(0_u64..40_000)).prop_map(|(tokens, money)| {
        let mut limits = Limits::new();
        limits.tokens = tokens;
        limits.money = money.map(|micros| Money::from_nanos(micros * 1_000));
        limits
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0_usize..20, 0_u64..3_000, 0_u64..3_000, 1_u64..3)
            .prop_map(|(at, input, output, sends)| Action::Reserve { at, input, output, sends }),
        3 => (0_usize..20, 0_u64..3_000, 0_u64..3_000, any::<bool>())
            .prop_map(|(nth, input, output, silent)| Action::Settle { nth, input, output, silent }),
        1 => (0_usize..20).prop_map(|nth| Action::Release { nth }),
        1 => (0_usize..20).prop_map(|nth| Action::Drop { nth }),
    ]
}

#[track_caller]
fn within(meter: &Meter) {
    let used = *meter.used();
    let tokens = used.spent.tokens + used.held.tokens;
    let cost = used.spent.cost.saturating_add(used.held.cost);
    assert!(
        meter.limits.tokens.is_none_or(|limit| tokens <= limit),
        "{tokens} tokens of {:?}",
        meter.limits
    );
    assert!(
        meter.limits.money.is_none_or(|limit| cost <= limit),
        "{cost} of {:?}",
        meter.limits
    );
}

proptest! {
    /// In any tree and any order, spending and reservations together never exceed a limit. When
    /// nothing is in progress, nothing is reserved and no call has to wait.
    #[test]
    fn meters_never_exceed_any_limit(
        tree in proptest::collection::vec((any::<proptest::sample::Index>(), limits()), 1..12),
        actions in proptest::collection::vec(action(), 0..80),
    ) {
        let mut meters: Vec<Arc<Meter>> = Vec::new();
        for (parent, limits) in tree {
            let parent = (!meters.is_empty()).then(|| meters[parent.index(meters.len())].clone());
            meters.push(Arc::new(Meter::new(limits, parent)));
        }
        let mut open: Vec<Reservation> = Vec::new();
        let price = Price::new(1.0, 4.0).with_cached(0.1).with_cache_write(1.25);
        for action in actions {
            match action {
                Action::Reserve { at, input, output, sends } => {
                    let worst = CostBound::new(input)
                        .with_output(output)
                        .with_price(price)
                        .with_sends(sends);
                    let meter = &meters[at % meters.len()];
                    match meter.reserve(worst) {
                        Ok(reservation) => {
                            prop_assert!(reservation.output() <= output);
                            open.push(reservation);
                        }
                        Err(Refusal::Wait(_)) => {
                            prop_assert!(!open.is_empty(), "no call is in progress");
                        }
                        Err(Refusal::Limit(_)) => {}
                    }
                }
                _ if open.is_empty() => {}
                Action::Settle { nth, input, output, silent } => {
                    let reservation = open.swap_remove(nth % open.len());
                    // Usage within the reserved amounts.
                    let (max_input, max_output) = (reservation.worst.input, reservation.output());
                    let mut usage = Usage::new(input.min(max_input), output.min(max_output));
                    if silent {
                        usage = Usage::default();
                    }
                    reservation.settle(&mut usage);
                }
                Action::Release { nth } => open.swap_remove(nth % open.len()).release(),
                Action::Drop { nth } => drop(open.swap_remove(nth % open.len())),
            }
            meters.iter().for_each(|meter| within(meter));
        }
        open.clear();
        for meter in &meters {
            within(meter);
            prop_assert_eq!(meter.used().held, Amount::default());
        }
    }
}
