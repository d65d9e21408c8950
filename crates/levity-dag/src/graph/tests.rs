use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::step::{OnFailure, Step};
use crate::{Condition, StepRunner, StepRunnerKind, Variable};

fn known() -> PlanConstraints {
    PlanConstraints::new().with("a", StepRunner::new(StepRunnerKind::Agent, ""))
}

fn step(id: &str) -> Step {
    Step::new(id, "a")
}

fn plan(steps: impl IntoIterator<Item = Step>) -> Plan {
    steps.into_iter().fold(Plan::new(), Plan::step)
}

/// The edges, with `!` if the target is a fallback, and the index of the `after` entry if there is
/// one.
fn edges(graph: &Graph) -> Vec<String> {
    let id = |at| graph.step(at).unwrap().id.clone();
    let mut edges = BTreeSet::new();
    for at in 0..graph.len() as u32 {
        for (from, edge) in graph.before(at) {
            let after = edge.after.map(|k| k.to_string()).unwrap_or_default();
            let mark = if edge.is_fallback { "!" } else { "" };
            assert!(
                edges.insert(format!("{}>{}{after}{mark}", id(from), id(at))),
                "one edge for a pair"
            );
            assert!(
                graph
                    .behind(from)
                    .any(|(to, same)| (to, same) == (at, edge))
            );
        }
    }
    edges.into_iter().collect()
}

#[track_caller]
fn check(plan: Plan, expected: &[&str]) -> Graph {
    let graph = Graph::check(plan, &known()).unwrap();
    assert_eq!(edges(&graph), expected);
    assert_eq!(graph.edges().count(), expected.len());
    graph
}

#[test]
fn edges_follow_from_after_and_variables() {
    let when = Condition::parse("v > 1").unwrap();
    let graph = check(
        plan([
            step("d").reads(["x"]).after("b").after("c"),
            step("b").reads(["x"]).writes(["v"]),
            step("c").after_if("b", when),
            step("a").writes(["x"]),
        ]),
        &["a>b", "a>d", "b>c0", "b>d0", "c>d1"],
    );
    let by = |of: &dyn Fn(u32) -> u32| ["a", "b", "c", "d"].map(|id| of(graph.find(id).unwrap()));
    assert_eq!(by(&|at| graph.rank(at)), [0, 1, 2, 3]);
    assert_eq!(by(&|at| graph.weight(at)), [4, 3, 2, 1]);
    assert_eq!(graph.writers("x"), [3]);
    assert_eq!(graph.writers("nothing"), [] as [u32; 0]);
}

#[test]
fn reader_before_writer_is_valid_with_explicit_order() {
    check(
        plan([
            step("init").writes(["x"]),
            step("look").reads(["x"]),
            step("mid").after("look"),
            step("again").writes(["x"]).after("mid").after("init"),
            step("end").reads(["x"]),
        ]),
        &[
            "again>end",
            "init>again1",
            "init>end",
            "init>look",
            "look>mid0",
            "mid>again0",
        ],
    );
}

#[test]
fn step_that_updates_variable_follows_other_writers() {
    let graph = check(
        plan([
            step("u").reads(["x"]).writes(["x"]),
            step("w").writes(["x"]),
            step("r").reads(["x"]),
        ]),
        &["u>r", "w>r", "w>u"],
    );
    assert_eq!(graph.writers("x"), [1, 0]);
}

#[test]
fn dependents_of_step_wait_for_its_fallbacks() {
    check(
        plan([
            step("a").on_failure(OnFailure::Fallback("b".into())),
            step("b"),
            step("c").instead_of("b"),
            step("d").after("x").after("a"),
            step("x"),
        ]),
        &["a>b!", "a>d1", "b>c!", "b>d1", "c>d1", "x>d0"],
    );
}

#[test]
fn fallback_may_also_state_its_order() {
    check(
        plan([
            step("a"),
            step("b").instead_of("a").after("a"),
            step("c").instead_of("a").after("a"),
        ]),
        &["a>b0!", "a>c0!"],
    );
}

#[test]
fn repeated_work_precedes_second_judge() {
    check(
        plan([
            step("work").writes(["x"]),
            step("judge").reads(["x"]),
            step("again").writes(["x"]).after("judge"),
            step("judge~2")
                .reads(["x"])
                .after("judge")
                .after("again")
                .instead_of("judge"),
            step("end").after("judge"),
        ]),
        &[
            "again>judge~21",
            "judge>again0",
            "judge>end0",
            "judge>judge~20!",
            "judge~2>end0",
            "work>judge",
            "work>judge~2",
        ],
    );
}

#[test]
fn ranks_follow_plan_order_where_possible() {
    let graph = Graph::check(
        plan(["d", "b", "a"].map(step)).step(step("c").after("a")),
        &known(),
    )
    .unwrap();
    assert_eq!(
        (0..4).map(|at| graph.rank(at)).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

#[test]
fn settled_step_gets_no_new_edges() {
    let old = plan([
        step("last").reads(["x"]).after("read"),
        step("read").reads(["x"]),
        step("old").writes(["x"]),
    ]);
    let old = Graph::check(old, &known()).unwrap();
    let new = Plan::clone(old.plan()).step(step("new").writes(["x"]));
    let settled = |id: &StepId| ["read", "old"].contains(&id.as_str());
    let graph = Graph::check_changed(new, &known(), &old, &settled).unwrap();
    assert_eq!(
        edges(&graph),
        ["new>last", "old>last", "old>read", "read>last0"]
    );
    assert_eq!(graph.writers("x"), [2, 3], "new steps are later");

    // The same holds when that step is settled, too, and another one is added.
    let third = Plan::clone(graph.plan()).step(step("third").reads(["x"]).writes(["x"]));
    let graph =
        Graph::check_changed(third, &known(), &graph, &|id| id.as_str() != "third").unwrap();
    assert_eq!(
        edges(&graph),
        [
            "new>last",
            "new>third",
            "old>last",
            "old>read",
            "old>third",
            "read>last0"
        ]
    );
    assert_eq!(graph.writers("x"), [2, 3, 4]);
}

#[test]
fn settled_steps_keep_their_order() {
    let known = known();
    let old = Graph::check(plan([step("u"), step("w").writes(["x"])]), &known).unwrap();
    let changed = plan([step("u").writes(["x"]), step("w").writes(["x"])]);
    let second = Graph::check_changed(changed, &known, &old, &|id| id.as_str() == "w").unwrap();
    assert_eq!(
        second.writers("x"),
        [1, 0],
        "settled steps precede the others"
    );
    let third = Plan::clone(second.plan()).step(step("r").reads(["x"]));
    let third = Graph::check_changed(third, &known, &second, &|id| id.as_str() != "r").unwrap();
    assert_eq!(
        third.writers("x"),
        [1, 0],
        "the order stays when both are settled"
    );
}

#[test]
fn alternatives_do_not_wait_for_each_other() {
    let update = |id| step(id).reads(["x"]).writes(["x"]);
    check(
        plan([
            step("w").writes(["x"]),
            update("a"),
            update("b").instead_of("a"),
            update("c").instead_of("a"),
        ]),
        &["a>b!", "a>c!", "w>a", "w>b", "w>c"],
    );
}

#[test]
fn long_chain_uses_constant_stack() {
    let mut known = known();
    known.max_steps = 100_000;
    let id = |n: usize| format!("s{n}");
    let chain = |last: usize| {
        let mut plan = plan((0..100_000).map(|n| {
            if n == 0 {
                step("s0")
            } else {
                step(&id(n)).after(id(n - 1))
            }
        }));
        plan.steps[0] = step("s0").after(id(last)).into();
        plan
    };
    let faults = Graph::check(chain(99_999), &known).unwrap_err();
    assert!(faults.to_string().contains("(99988 more)"), "{faults}");
    let mut straight = chain(1);
    straight.steps[0] = step("s0").into();
    let graph = Graph::check(straight, &known).unwrap();
    assert_eq!(graph.weight(0), 100_000);
}

#[test]
fn many_writers_with_many_readers_are_rejected() {
    let writers = (0..2_000).map(|n| step(&format!("w{n}")).writes(["x"]));
    let readers = (0..2_000).map(|n| step(&format!("r{n}")).reads(["x"]));
    let plan =
        plan(writers.chain(readers)).variable("x", Variable::new().reducer(crate::Reducer::List));
    let faults = Graph::check(plan, &known()).unwrap_err();
    assert!(
        faults
            .to_string()
            .starts_with("the steps depend on each other in more than 500000 ways"),
        "{faults}"
    );
}

#[test]
fn many_shared_fallbacks_are_rejected_quickly() {
    let id = |n: usize| format!("s{n}");
    let chain = (0..3_000).map(|n| step(&id(n)).on_failure(OnFailure::Fallback(id(n + 1).into())));
    let users = (0..3_000).map(|n| step(&format!("u{n}")).after("s0"));
    let faults =
        Graph::check(plan(chain.chain([step(&id(3_000))]).chain(users)), &known()).unwrap_err();
    assert!(
        faults.to_string().contains("more than 500000 ways"),
        "{faults}"
    );
}

/// A plan of a few steps with random references and variables, many of them invalid.
fn any_plan() -> impl Strategy<Value = Plan> {
    let name = prop::sample::select(vec!["x", "y", "z"]);
    let names = || prop::collection::vec(name.clone(), 0..3);
    let after = prop::collection::btree_set(0..9usize, 0..3);
    let fallback = prop::option::weighted(0.15, 0..9usize);
    let one = (names(), names(), after, fallback);
    (
        prop::collection::vec(one, 1..9),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(steps, given, reduced)| {
            let mut plan = Plan::new();
            for (n, (reads, writes, after, fallback)) in steps.into_iter().enumerate() {
                let mut step = step(&format!("s{n}")).reads(reads).writes(writes);
                for k in after {
                    step = step.after(format!("s{k}"));
                }
                plan = plan.step(match fallback {
                    Some(k) => step.instead_of(format!("s{k}")),
                    None => step,
                });
            }
            plan = if given {
                plan.given("x", 1).given("y", 1)
            } else {
                plan
            };
            if reduced {
                plan.variable("x", Variable::new().reducer(crate::Reducer::List))
            } else {
                plan
            }
        })
}

/// The rules in their simplest form, without regard to cost: returns the edges, or `None` for an
/// invalid plan.
fn naive(plan: &Plan) -> Option<BTreeSet<(usize, usize)>> {
    let steps = &plan.steps;
    let n = steps.len();
    let find = |id: &StepId| steps.iter().position(|step| step.id == *id);
    let mut source = vec![None; n];
    for (at, step) in steps.iter().enumerate() {
        if let Some(id) = step.fallback_for() {
            source[at] = Some(find(id)?);
        }
    }
    let is_fallback = |at: usize, of: usize| {
        let mut up = source[at];
        (0..n).any(|_| {
            let is = up == Some(of);
            up = up.and_then(|at| source[at]);
            is
        })
    };
    let (mut stated, mut inherited) = (vec![vec![false; n]; n], Vec::new());
    for (at, step) in steps.iter().enumerate() {
        if let Some(of) = source[at] {
            stated[of][at] = true;
        }
        for after in &step.after {
            let of = find(&after.step)?;
            stated[of][at] = true;
            inherited.extend(
                (0..n)
                    .filter(|s| is_fallback(*s, of) && !is_fallback(at, of))
                    .map(|s| (s, at)),
            );
        }
    }
    let before = closed(&stated);
    inherited.retain(|(s, at)| !before[*at][*s]);
    inherited
        .into_iter()
        .for_each(|(s, at)| stated[s][at] = true);
    let before = closed(&stated);
    let (mut all, family) = (stated.clone(), |at: usize| {
        let mut root = at;
        (0..n).for_each(|_| root = source[root].unwrap_or(root));
        root
    });
    (0..n).all(|at| !before[at][at]).then_some(())?;
    for (to, reader) in steps.iter().enumerate() {
        for name in &reader.reads {
            let mut written = plan.given.contains_key(name);
            for from in (0..n).filter(|from| *from != to && steps[*from].writes.contains(name)) {
                let alternative = reader.writes.contains(name) && family(from) == family(to);
                if !before[to][from] && !alternative {
                    all[from][to] = true;
                    written = true;
                }
            }
            written.then_some(())?;
        }
    }
    let order = closed(&all);
    (0..n).all(|at| !order[at][at]).then_some(())?;
    for (a, b) in (0..n).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let shared = steps[a].writes.iter().any(|name| {
            steps[b].writes.contains(name)
                && plan
                    .variables
                    .get(name)
                    .is_none_or(|it| it.reducer.is_none())
        });
        let fine = !shared || order[a][b] || order[b][a] || family(a) == family(b);
        fine.then_some(())?;
    }
    let writes = |at: usize, name| steps[at].writes.contains(name);
    let kept = (0..n)
        .all(|at| source[at].is_none_or(|of| steps[of].writes.iter().all(|name| writes(at, name))));
    let pairs = (0..n).flat_map(|from| (0..n).map(move |to| (from, to)));
    kept.then(|| pairs.filter(|(from, to)| all[*from][*to]).collect())
}

fn closed(edges: &[Vec<bool>]) -> Vec<Vec<bool>> {
    let mut closed = edges.to_vec();
    for k in 0..closed.len() {
        for a in 0..closed.len() {
            for b in 0..closed.len() {
                closed[a][b] |= closed[a][k] && closed[k][b];
            }
        }
    }
    closed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn check_accepts_plan_exactly_if_rules_do(plan in any_plan()) {
        let expected = naive(&plan);
        let checked = Graph::check(plan, &known());
        prop_assert_eq!(checked.is_ok(), expected.is_some(), "{:?}", checked.err());
        if let (Ok(graph), Some(expected)) = (checked, expected) {
            let found: BTreeSet<_> = (0..graph.len() as u32)
                .flat_map(|to| {
                    graph
                        .before(to)
                        .map(move |(from, _)| (from as usize, to as usize))
                        .collect::<Vec<_>>()
                })
                .collect();
            prop_assert_eq!(&found, &expected);
            for (from, to) in found {
                prop_assert!(graph.rank(from as u32) < graph.rank(to as u32));
                prop_assert!(graph.weight(from as u32) > graph.weight(to as u32));
            }
            let ranks: BTreeSet<_> = (0..graph.len() as u32).map(|at| graph.rank(at)).collect();
            prop_assert_eq!(ranks.len(), graph.len());
        }
    }
}

/// A graph with edges from lower to higher numbers, with more targets than one pass handles.
fn any_dag() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
    (2..700usize).prop_flat_map(|n| {
        let edge =
            (0..n as u32, 0..n as u32).prop_filter_map("no loops", |(a, b)| match a.cmp(&b) {
                std::cmp::Ordering::Less => Some((a, b)),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some((b, a)),
            });
        (Just(n), prop::collection::vec(edge, 0..n * 2))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn reaches_agrees_with_path_search((n, edges) in any_dag(), seed in any::<u32>()) {
        let mut dag = Dag::default();
        (0..n).for_each(|_| _ = dag.add_node(()));
        edges.iter().for_each(|(a, b)| _ = dag.add_edge((*a).into(), (*b).into(), Edge::default()));
        let order = levity_graph::sorted(&NumberedLinks(&dag), |_| 0).unwrap();
        let ranks = order::ranks(&order);
        let pair = |k: u32| {
            let mixed = u64::from(k.wrapping_mul(2_654_435_761).wrapping_add(seed));
            ((mixed % n as u64) as u32, (mixed / 7 % n as u64) as u32)
        };
        let pairs: Vec<_> = (0..2_000).map(pair).collect();
        let found = reach::reaches(&dag, &order, &ranks, &pairs);
        for ((from, to), found) in pairs.into_iter().zip(found) {
            let expected = petgraph::algo::has_path_connecting(&dag, from.into(), to.into(), None);
            prop_assert_eq!(found, expected, "{} to {}", from, to);
        }
    }
}
