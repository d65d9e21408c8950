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

/// A dollar per million tokens, in or out: a token is a millionth of a dollar.
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
fn the_worst_case_is_reserved_up_the_tree_and_the_rest_given_back() {
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
fn a_reply_is_as_long_as_what_is_spent_allows() {
    let top = root(Limits::new().tokens(1_000));
    let bottom = child(Limits::new().money(dollars(0.0004)), &top);
    assert_eq!(
        bottom.reserve(worst(300, 500)).unwrap().output(),
        100,
        "the nearest limit is the tightest"
    );
    assert_eq!(bottom.spent().tokens, 400, "what is dropped counts in full");
    assert_eq!(refused(&bottom, worst(300, 500)), Limit::Money);
    assert_eq!(
        top.reserve(worst(100, 5_000)).unwrap().output(),
        500,
        "the money was the child's limit"
    );
    assert_eq!(refused(&top, worst(1, 1)), Limit::Tokens);
    let unsaid = root(Limits::new().tokens(1_000_000));
    assert_eq!(
        unsaid.reserve(CostBound::new(1)).unwrap().output(),
        CostBound::DEFAULT_OUTPUT
    );
}

#[test]
fn a_reply_too_short_to_be_of_use_is_refused_unless_it_was_wanted() {
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
fn who_finds_the_room_taken_waits_until_some_is_given_back() {
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
fn what_is_not_known_counts_as_the_most() {
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
        "an estimate is not the provider's word"
    );
    assert_eq!(
        settled(Usage::new(900, 900)),
        (Some(900), Some(900), false),
        "more than allowed counts"
    );
}

#[test]
fn input_of_which_the_cache_is_not_known_has_the_dearest_rate() {
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
fn fees_that_nobody_knows_count_at_their_most() {
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
    // The same where the cache is not known.
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
fn what_cost_nobody_knows_is_counted_by_rule_or_as_all_there_is() {
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
fn calls_are_counted_here_and_above_or_not_at_all() {
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
fn a_limit_is_low_at_the_set_share() {
    let meter = root(Limits::new().tokens(1_000).low(20));
    let below = child(Limits::new(), &meter);
    below.add(&Spending::on(799, None));
    assert_eq!(below.low(), None);
    below.add(&Spending::on(1, None));
    assert_eq!((below.low(), below.near()), (Some(Limit::Tokens), None));
    assert_eq!(
        root(Limits::new().money(dollars(1.0)).low(100)).low(),
        Some(Limit::Money)
    );
    assert_eq!(root(Limits::new().low(100)).low(), None);
}

#[test]
fn near_is_what_a_run_and_those_above_it_need_to_answer() {
    // A call of 300 tokens, and an answer of 500 at most after it.
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
    assert_eq!((top.near(), middle.near()), (None, None));
    called(&middle);
    // 700 are left: not enough for the 800 of any run, and a new one is taken to be like the one
    // above it.
    assert_eq!(top.near(), Some(Limit::Tokens));
    assert_eq!(bottom.near(), Some(Limit::Tokens));

    let top = root(Limits::new().tokens(10_000));
    let below = child(Limits::new(), &top);
    top.add(&Spending::on(8_400, None));
    called(&top);
    called(&below);
    // 1,000 are left: enough for the 800 of one, and not for the answer of the other as well.
    assert_eq!((top.near(), below.near()), (None, Some(Limit::Tokens)));

    let idle = root(Limits::new().tokens(10_000));
    idle.add(&Spending::on(9_000, None));
    called(&child(Limits::new(), &idle));
    assert_eq!(
        idle.near(),
        Some(Limit::Tokens),
        "it calls nothing itself, so the last call below counts"
    );
}

/// What somebody does to a tree of meters.
#[derive(Clone, Debug)]
enum Act {
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

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0_usize..20, 0_u64..3_000, 0_u64..3_000, 1_u64..3)
            .prop_map(|(at, input, output, sends)| Act::Reserve { at, input, output, sends }),
        3 => (0_usize..20, 0_u64..3_000, 0_u64..3_000, any::<bool>())
            .prop_map(|(nth, input, output, silent)| Act::Settle { nth, input, output, silent }),
        1 => (0_usize..20).prop_map(|nth| Act::Release { nth }),
        1 => (0_usize..20).prop_map(|nth| Act::Drop { nth }),
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
    /// In any tree, in any order: what is spent and what is reserved never pass a limit together,
    /// and when nothing is under way nothing is held and nobody has to wait.
    #[test]
    fn no_limit_is_ever_passed(
        tree in proptest::collection::vec((any::<proptest::sample::Index>(), limits()), 1..12),
        acts in proptest::collection::vec(act(), 0..80),
    ) {
        let mut meters: Vec<Arc<Meter>> = Vec::new();
        for (parent, limits) in tree {
            let parent = (!meters.is_empty()).then(|| meters[parent.index(meters.len())].clone());
            meters.push(Arc::new(Meter::new(limits, parent)));
        }
        let mut open: Vec<Reservation> = Vec::new();
        let price = Price::new(1.0, 4.0).with_cached(0.1).with_cache_write(1.25);
        for act in acts {
            match act {
                Act::Reserve { at, input, output, sends } => {
                    let worst = CostBound::new(input).with_output(output).with_price(price).with_sends(sends);
                    let meter = &meters[at % meters.len()];
                    match meter.reserve(worst) {
                        Ok(reservation) => {
                            prop_assert!(reservation.output() <= output);
                            open.push(reservation);
                        }
                        Err(Refusal::Wait(_)) => prop_assert!(!open.is_empty(), "it waits for \
                            nobody"),
                        Err(Refusal::Limit(_)) => {}
                    }
                }
                _ if open.is_empty() => {}
                Act::Settle { nth, input, output, silent } => {
                    let reservation = open.swap_remove(nth % open.len());
                    // Honest: within what was allowed.
                    let mut usage =
                        Usage::new(input.min(reservation.worst.input), output.min(reservation.output()));
                    if silent {
                        usage = Usage::default();
                    }
                    reservation.settle(&mut usage);
                }
                Act::Release { nth } => open.swap_remove(nth % open.len()).release(),
                Act::Drop { nth } => drop(open.swap_remove(nth % open.len())),
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
