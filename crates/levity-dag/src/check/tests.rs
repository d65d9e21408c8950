use std::time::Duration;

use levity_core::{Limits, Money};
use serde_json::json;

use crate::step::{After, Budget, FanOut, Join, OnFailure, Reducer, Retry, Step};
use crate::{
    Condition, FaultKind, Faults, Graph, Plan, PlanConstraints, StepRunner, StepRunnerKind,
    Variable,
};

fn known() -> PlanConstraints {
    let mut frugal = StepRunner::new(StepRunnerKind::Agent, "thinks");
    frugal.budget = Some(Budget::new().tokens(100));
    PlanConstraints::new()
        .with("Retriever", StepRunner::new(StepRunnerKind::Agent, "finds"))
        .with("Thinker", frugal)
        .with("add", StepRunner::new(StepRunnerKind::Function, "adds"))
}

fn step(id: &str) -> Step {
    Step::new(id, "Retriever")
}

fn plan(steps: impl IntoIterator<Item = Step>) -> Plan {
    steps.into_iter().fold(Plan::new(), Plan::step)
}

fn when(text: &str) -> Condition {
    Condition::parse(text).unwrap()
}

#[track_caller]
fn assert_valid(plan: Plan) {
    Graph::check(plan, &known()).unwrap();
}

#[track_caller]
fn assert_faults(plan: Plan, expected: &[(FaultKind, &str)]) {
    assert_faults_with(plan, &known(), expected);
}

#[track_caller]
fn assert_faults_with(plan: Plan, known: &PlanConstraints, expected: &[(FaultKind, &str)]) {
    let faults = Graph::check(plan, known).unwrap_err().faults;
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| (fault.kind, fault.message.as_str()))
        .collect();
    assert_eq!(faults, expected);
}

#[test]
fn plan_sizes_are_limited() {
    let none = "the plan has no steps; add at least one to `steps`";
    assert_faults(plan([]), &[(FaultKind::Size, none)]);
    let mut small = known();
    small.max_steps = 2;
    let many =
        "the plan has 3 steps, more than the limit of 2; fan one step out over a list instead";
    assert_faults_with(
        plan(["a", "b", "c"].map(step)),
        &small,
        &[(FaultKind::Size, many)],
    );
    let long = "step `a` has 10485770 bytes of text, more than the limit of 1048576; put it into a \
        file or a variable";
    assert_faults(
        plan([step("a").prompt("x".repeat(10 << 20))]),
        &[(FaultKind::Size, long)],
    );
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    assert_faults(
        plan([step("a").input("x", deep.clone())]).given("y", deep),
        &[
            (
                FaultKind::Size,
                "step `a` has the input `x`, nested deeper than 64 levels; flatten it",
            ),
            (
                FaultKind::Variable,
                "variable `y` has an initial value that is nested deeper than 64 levels; flatten \
                 it",
            ),
        ],
    );
}

#[test]
fn invalid_ids_are_rejected() {
    assert_faults(
        plan([
            step("a"),
            step(""),
            step("a"),
            step("ROOT"),
            step("x\ny"),
            step(&"i".repeat(300)),
        ]),
        &[
            (FaultKind::Id, "the id of step 2 is empty; give it a name"),
            (
                FaultKind::Id,
                "steps 1 and 3 both have the id `a`; give each its own",
            ),
            (
                FaultKind::Id,
                "the id `ROOT` of step 4 is reserved for the question itself; choose another id",
            ),
            (
                FaultKind::Id,
                "the id of step 5 contains a control character; use printable characters",
            ),
            (
                FaultKind::Id,
                "the id of step 6 has 300 bytes, more than 256; choose a shorter one",
            ),
        ],
    );
}

#[test]
fn unknown_or_missing_runners_are_rejected() {
    let mut both = Step::code("both", ["1"]);
    both.agent = "Thinker".into();
    assert_faults(
        plan([
            Step::new("a", "Retreiver"),
            Step::new("b", "Painter"),
            Step::new("c", ""),
            both,
            Step::code("d", ["1"]),
        ]),
        &[
            (
                FaultKind::Agent,
                "step `a` has the unknown agent `Retreiver`; did you mean `Retriever`?",
            ),
            (
                FaultKind::Agent,
                "step `b` has the unknown agent `Painter`; available: `Retriever`, `Thinker`, \
                    `add`",
            ),
            (
                FaultKind::Agent,
                "step `c` has no runner; name an agent, function or tool in `agent`",
            ),
            (
                FaultKind::Agent,
                "step `both` has both `agent` and `code`; leave one of them out",
            ),
            (
                FaultKind::Agent,
                "step `d` is code, which this team cannot run; use an agent instead",
            ),
        ],
    );
    let mut coding = known();
    coding.code = true;
    Graph::check(plan([Step::code("d", ["1"])]), &coding).unwrap();
}

#[test]
fn invalid_references_are_rejected() {
    assert_faults(
        plan([
            step("fetch"),
            step("a").after("fetsh").after("a"),
            step("b").on_failure(OnFailure::Fallback("nobody".into())),
            step("c").instead_of("c"),
            step("d").after("fetch").after_if("fetch", when("1")),
        ]),
        &[
            (
                FaultKind::Reference,
                "step `a` follows `fetsh`, which does not exist; did you mean `fetch`?",
            ),
            (
                FaultKind::Cycle,
                "step `a` follows itself; remove that from its `after`",
            ),
            (
                FaultKind::Reference,
                "step `b` falls back to `nobody`, which does not exist",
            ),
            (
                FaultKind::Cycle,
                "step `c` is a fallback for itself; remove that from its `instead_of`",
            ),
            (
                FaultKind::Reference,
                "step `d` follows `fetch` twice; combine the two conditions",
            ),
        ],
    );
}

#[test]
fn cycle_fault_names_all_steps() {
    assert_faults(
        plan([
            step("a").after("c"),
            step("b").after("a"),
            step("c").after("b"),
            step("d").after("a"),
        ]),
        &[(
            FaultKind::Cycle,
            "the steps form a cycle: `a -> b -> c -> a`; remove one of these edges",
        )],
    );
    assert_faults(
        plan([
            step("a").reads(["y"]).writes(["x"]),
            step("b").reads(["x"]).writes(["y"]),
        ]),
        &[(
            FaultKind::Cycle,
            "the steps form a cycle: `a -> b -> a` (`b` reads `x`, which `a` writes, `a` \
                reads `y`, which `b` \
             writes); remove one of these edges",
        )],
    );
    assert_faults(
        plan([step("a").instead_of("b"), step("b").instead_of("a")]),
        &[(
            FaultKind::Cycle,
            "the steps form a cycle: `a -> b -> a` (`b` is a fallback for `a`, `a` is a fallback \
                for `b`); remove one of \
             these edges",
        )],
    );
    let long = (0..30).map(|n| step(&format!("s{n}")).after(format!("s{}", (n + 29) % 30)));
    let faults = Graph::check(plan(long), &known()).unwrap_err();
    assert!(faults.to_string().contains(
        "`s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> s6 -> s7 -> s8 -> s9 -> s10 -> s11 -> (18 more) -> \
            s0`"
    ));
}

#[test]
fn cycle_fault_names_shortest_cycle() {
    let ring = (0..9).map(|n| step(&format!("s{n}")).after(format!("s{}", (n + 8) % 9)));
    let plan = plan(ring.chain([step("x").after("s5")]));
    let mut plan = plan;
    plan.steps[5] = step("s5").after("s4").after("x").into();
    assert_faults(
        plan,
        &[(
            FaultKind::Cycle,
            "the steps form a cycle: `s5 -> x -> s5`; remove one of these edges",
        )],
    );
}

#[test]
fn reads_without_writer_are_rejected() {
    assert_valid(plan([step("a").reads(["q"])]).given("q", 1));
    assert_valid(plan([step("a").reads(["x"]), step("b").writes(["x"])]));
    assert_faults(
        plan([
            step("a").reads(["pagge"]).writes(["page"]),
            step("b").when(when("verdict == 'pass'")),
            step("c").map(FanOut::over("urls")),
            step("d").after_if("c", when("score")),
            step("e").reads(["count"]).writes(["count"]),
            step("f").reads(["late"]),
            step("g").writes(["late"]).after("f"),
        ]),
        &[
            (
                FaultKind::Read,
                "step `a` reads `pagge`, which no step writes and `given` does not set; did you \
                    mean \
                    `page`?",
            ),
            (
                FaultKind::Read,
                "step `b` reads `verdict`, which no step writes and `given` does not set",
            ),
            (
                FaultKind::Read,
                "step `c` reads `urls`, which no step writes and `given` does not set",
            ),
            (
                FaultKind::Read,
                "step `d` reads `score`, which no step writes and `given` does not set",
            ),
            (
                FaultKind::Read,
                "step `e` reads `count`, which no other step writes; set an initial value in \
                    `given`",
            ),
            (
                FaultKind::Read,
                "step `f` reads `late`, which only the later step `g` writes; put that step before \
                 it",
            ),
        ],
    );
}

#[test]
fn writers_need_order_or_reducer() {
    let two = || [step("a").writes(["x"]), step("b").writes(["x"])];
    assert_faults(
        plan(two()),
        &[(
            FaultKind::Write,
            "steps `a` and `b` both write `x`, but their order is undefined; put one after the \
                other, rename one, or \
             give `x` a reducer in `variables`, such as `last` for branches of which one runs",
        )],
    );
    assert_valid(plan(two()).variable("x", Variable::new().reducer(Reducer::Last)));
    assert_valid(plan([
        step("a").writes(["x"]),
        step("m").after("a"),
        step("b").writes(["x"]).after("m"),
    ]));
    assert_valid(plan([
        step("a").writes(["x"]),
        step("b").reads(["x"]).writes(["x"]),
    ]));
    let fork = [
        step("r"),
        step("a").after("r").writes(["x"]),
        step("b").after("r").writes(["x"]),
    ];
    assert_eq!(kinds(plan(fork)), [FaultKind::Write]);
}

#[test]
fn two_unordered_updates_form_cycle() {
    let update = |id| step(id).reads(["x"]).writes(["x"]);
    assert_eq!(
        kinds(plan([step("a").writes(["x"]), update("b"), update("c")])),
        [FaultKind::Cycle]
    );
    assert_valid(plan([
        step("a").writes(["x"]),
        update("b"),
        update("c").after("b"),
    ]));
}

#[track_caller]
fn kinds(plan: Plan) -> Vec<FaultKind> {
    Graph::check(plan, &known())
        .unwrap_err()
        .faults
        .iter()
        .map(|fault| fault.kind)
        .collect()
}

#[test]
fn fallback_must_write_variables_of_its_step() {
    let fallback = || {
        step("a")
            .writes(["x", "y"])
            .on_failure(OnFailure::Fallback("b".into()))
    };
    assert_valid(plan([
        fallback(),
        step("b").writes(["y", "x", "z"]),
        step("c").reads(["x"]),
    ]));
    assert_faults(
        plan([fallback(), step("b").writes(["y"])]),
        &[(
            FaultKind::Write,
            "step `b` is a fallback for `a` but does not write `x`; add it to its `writes`",
        )],
    );
}

#[test]
fn fallbacks_of_one_step_are_alternatives() {
    let alternatives = || {
        plan([
            step("a").writes(["x"]),
            step("b").writes(["x"]).instead_of("a"),
            step("c").writes(["x"]).instead_of("a"),
        ])
    };
    assert_valid(alternatives());
    assert_valid(alternatives().step(step("d").writes(["x"]).after("a")));
    assert_eq!(
        kinds(alternatives().step(step("d").writes(["x"]).after("c"))),
        [FaultKind::Write]
    );
    // A fallback for two steps does not make those two alternatives.
    let shared = |id| {
        step(id)
            .writes(["x"])
            .on_failure(OnFailure::Fallback("s".into()))
    };
    assert_eq!(
        kinds(plan([shared("a"), shared("b"), step("s").writes(["x"])])),
        [FaultKind::Write]
    );
}

#[test]
fn out_of_range_options_are_rejected() {
    assert_faults(
        plan([
            step("a").retry(Retry::attempts(0)),
            step("b").retry(Retry::attempts(u32::MAX).pause(Duration::MAX)),
            step("c").timeout(Duration::ZERO),
            step("d").map(FanOut::over("l").max_items(0)),
            step("e").map(FanOut::over("l").max_items(3).quorum(4)),
            step("f").map(FanOut::over("l").max_items(usize::MAX)),
            step("g").map(FanOut::over("l").max_items(1)),
            step("h").map(FanOut::over("l").quorum(3)),
            step("i").map(FanOut::over("n")),
            step("j").map(FanOut::over("l")).reads(["item"]),
            step("k").reads(["n"]).input("n", 1),
            step("m").writes([""]),
        ])
        .given("l", json!([1, 2]))
        .given("n", 1)
        .given("item", 1),
        &[
            (FaultKind::Size, "step `a` has 0 attempts; set 1 to 100"),
            (
                FaultKind::Size,
                "step `b` has 4294967295 attempts; set 1 to 100",
            ),
            (
                FaultKind::Size,
                "step `b` has a `pause` of more than 300 seconds; set a shorter one",
            ),
            (
                FaultKind::Size,
                "step `c` has a `timeout` of zero or of more than 2592000 seconds; set one in \
                    between",
            ),
            (
                FaultKind::Size,
                "step `d` has `most` 0 in `map`; set 1 to 100000",
            ),
            (
                FaultKind::Variable,
                "step `d` runs for each of 2 elements of `l`, more than the limit of 0; raise \
                    `most`",
            ),
            (
                FaultKind::Size,
                "step `e` has a `quorum` of 4 with at most 3 elements; set `quorum` from 1 to \
                    `most`",
            ),
            (
                FaultKind::Variable,
                "step `e` has a `quorum` larger than the 2 elements of `l`; lower `quorum`",
            ),
            (
                FaultKind::Size,
                "step `f` has `most` 18446744073709551615 in `map`; set 1 to 100000",
            ),
            (
                FaultKind::Variable,
                "step `g` runs for each of 2 elements of `l`, more than the limit of 1; raise \
                    `most`",
            ),
            (
                FaultKind::Variable,
                "step `h` has a `quorum` larger than the 2 elements of `l`; lower `quorum`",
            ),
            (
                FaultKind::Variable,
                "step `i` runs for each element of `n`, which is not a list; set a list in `given`",
            ),
            (
                FaultKind::Size,
                "step `j` names its element `item`, like another input; rename it with `as`",
            ),
            (
                FaultKind::Size,
                "step `k` has `n` in both `reads` and `inputs`; rename one",
            ),
            (
                FaultKind::Variable,
                "step `m` has a name in `writes` that is empty; give it a name",
            ),
        ],
    );
}

#[test]
fn schemas_and_initial_values_are_validated() {
    let number = || Variable::new().schema(json!({"type": "integer"}));
    assert_valid(plan([step("a")]).variable("n", number()).given("n", 1));
    assert_faults(
        plan([step("a")])
            .variable("n", number())
            .given("n", "one")
            .variable("m", Variable::new().schema(json!({"type": "nothing"}))),
        &[
            (
                FaultKind::Variable,
                "variable `m` has an invalid schema: the schema is not valid: at \
                    `/type`: \"nothing\" is not valid under any of the schemas listed in the \
                    'anyOf' keyword",
            ),
            (
                FaultKind::Variable,
                "variable `n` has an initial value that does not match its schema: \"one\" is not \
                    of \
                    type \"integer\"",
            ),
        ],
    );
}

#[test]
fn worst_case_over_budget_is_rejected() {
    let thinks = |id: &str| Step::new(id, "Thinker");
    let mut known = known();
    known.limits = Limits::new().tokens(1_000).money(Money::from_dollars(1.0));
    let ok = |plan: Plan| Graph::check(plan, &known).map(|_| ());
    ok(plan((0..10).map(|n| thinks(&format!("s{n}"))))).unwrap();
    ok(plan([thinks("a").map(FanOut::over("l"))]).given("l", json!([1, 2, 3, 4, 5]))).unwrap();
    ok(plan([thinks("a").budget(
        Budget::new().tokens(1).model_calls(u64::MAX / 2),
    )]))
    .unwrap_err();
    assert_faults_with(
        plan([thinks("a").retry(Retry::attempts(11)), step("b")]),
        &known,
        &[(
            FaultKind::Budget,
            "the steps may use 1100 tokens, more than the available 1000 tokens; `a` alone may use \
                1100 \
                tokens: lower its \
             `tokens`, its attempts or its `most`",
        )],
    );
    let costly = step("a").budget(
        Budget::new()
            .money(Money::from_dollars(0.6))
            .tokens(u64::MAX),
    );
    let faults = Graph::check(
        plan([costly, thinks("b").map(FanOut::over("l"))]).given("l", json!([])),
        &known,
    );
    let faults: Vec<_> = faults
        .unwrap_err()
        .faults
        .iter()
        .map(|fault| fault.kind)
        .collect();
    assert_eq!(faults, [FaultKind::Budget]);
}

#[test]
fn faults_beyond_limit_are_only_counted() {
    let faults: Faults = Graph::check(
        plan((0..500).map(|n| Step::new(format!("s{n}"), "nobody"))),
        &known(),
    )
    .unwrap_err();
    assert_eq!(
        (faults.faults.len(), faults.more),
        (Faults::MAX_REPORTED, 450)
    );
    assert!(faults.to_string().ends_with("; and 450 more"));
}

#[test]
fn joins_and_conditions_do_not_change_order() {
    let both = step("c")
        .join(Join::Any)
        .after_if("a", when("x"))
        .after("b");
    assert_eq!(both.after[1], After::new("b"));
    assert_valid(plan([step("a").writes(["x"]), step("b"), both]));
}
